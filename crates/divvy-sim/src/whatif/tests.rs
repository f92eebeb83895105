use super::*;
use divvy_core::amount::{Amount, Limits, Resource};
use divvy_core::id::JobId;
use divvy_core::scenario::Scenario;

fn past_since(since_ms: i64, lines: &str) -> Past {
    let mut scenario = Scenario::new();
    lines.lines().for_each(|line| scenario.line(line).unwrap());
    let mut recorder = Recorder::since(since_ms);
    scenario.log.iter().for_each(|event| recorder.follow(event).unwrap());
    recorder.finish()
}

fn past(lines: &str) -> Past {
    past_since(0, lines)
}

fn whatif(past: &Past, changes: &[&str]) -> Answer {
    let changes: Vec<Change> = changes.iter().map(|text| text.parse().unwrap()).collect();
    let under = past.under(&changes, &memory).unwrap();
    compare(past, &changes, under).unwrap()
}

/// What a catalogue would say.
fn memory(model: &str) -> Option<u64> {
    (model == "l4").then_some(23_034)
}

/// One node of two devices; three jobs of both devices, a minute each, one after the other.
const IN_TURN: &str = "node n1 2xh100\nsubmit a default 2\nsubmit b default 2\nsubmit c default 2\nplan
pass 1m\nend a\nplan\npass 1m\nend b\nplan\npass 1m\nend c\nplan";

#[test]
fn the_past_as_it_was_waits_as_it_waited() {
    let answer = whatif(&past(IN_TURN), &["nodes+1"]);
    let Fidelity { jobs, recorded_mean_wait_s, replayed_mean_wait_s } = answer.fidelity;
    assert_eq!((jobs, recorded_mean_wait_s, replayed_mean_wait_s), (3, 60.0, 60.0));
    assert_eq!((answer.before.all.p50_wait_s, answer.before.all.p99_wait_s), (Some(60.0), Some(120.0)));
    assert_eq!((answer.before.gpu_use, answer.before.all.gpu_hours), (1.0, 0.1));
}

#[test]
fn one_more_node_lets_two_run_at_once() {
    let answer = whatif(&past(IN_TURN), &["nodes+1"]);
    assert_eq!(
        (answer.after.gpus, answer.after.all.mean_wait_s, answer.after.all.p90_wait_s),
        (4, Some(20.0), Some(60.0))
    );
    assert_eq!(answer.after.all.gpu_hours, 0.1);
    assert_eq!(answer.changes, ["nodes+1"]);
}

#[test]
fn a_tighter_limit_makes_its_queue_wait_and_others_not() {
    let past = past(
        "node n1 4xh100\nqueue v\nqueue w\nsubmit a v 2\nsubmit b v 2\nplan\npass 1m\nsubmit c w 2\nend a\nplan\npass 1m\nend b\nend c\nplan",
    );
    let answer = whatif(&past, &["queue v limit=2"]);
    assert_eq!((answer.before.all.mean_wait_s, answer.fidelity.recorded_mean_wait_s), (Some(0.0), 0.0));
    assert_eq!(answer.after.by_queue["v"].p99_wait_s, Some(60.0));
    assert_eq!(answer.after.by_queue["w"].p99_wait_s, Some(0.0));
}

#[test]
fn where_nobody_starts_there_is_no_wait_to_tell() {
    let lines =
        "node n1 2xh100\nqueue v\nsubmit a v 1\nsubmit b default 1\nplan\npass 1m\nend a\nend b\nplan";
    let answer = whatif(&past(lines), &["queue v limit=0"]);
    assert_eq!(answer.before.by_queue["v"].mean_wait_s, Some(0.0));
    let after = &answer.after.by_queue["v"];
    assert_eq!((after.started, after.never, after.mean_wait_s, after.p99_wait_s), (0, 1, None, None));
}

#[test]
fn models_that_the_pool_has_not_come_with_the_memory_that_such_have() {
    let past = past(IN_TURN);
    let added = |change: &str| {
        let under = past.under(&[change.parse().unwrap()], &memory).unwrap();
        under.nodes.last().unwrap().1[0].memory_mib
    };
    assert_eq!((added("nodes+1xl4:2"), added("nodes+1xb9000:2")), (23_034, 81_920));
    let told = whatif(&past, &["nodes+1xl4:2"]).assumptions;
    assert!(told.iter().any(|line| line.starts_with("l4, of which the pool has none")), "{told:?}");
}

#[test]
fn policies_that_know_more_are_refused_in_true_words() {
    let past = past(IN_TURN);
    let said = |change: &str| past.under(&[change.parse().unwrap()], &memory).unwrap_err().to_string();
    assert!(said("policy hist").contains("estimates"), "{}", said("policy hist"));
    assert!(said("policy srtf").contains("how long jobs will be"), "{}", said("policy srtf"));
    assert!(
        said("policy fcfs")
            .contains("here there are: fifo, fifo-scan, las, mlfq, quota-fifo, quota-mlfq, divvy;")
    );
    assert_eq!(said("policy ./none.yaml"), "there is no file ./none.yaml");
    assert_eq!(said("nodes-n1"), "nodes-n1: the pool has 1, and one must be left");
}

#[test]
fn many_nodes_come_as_fast_as_few_and_under_names_of_their_own() {
    let past = past(IN_TURN);
    let changes = ["nodes+20000", "nodes+20000xh100:2", "nodes-3"].map(|text| text.parse().unwrap());
    let settings = past.settings.under(&changes, &memory).unwrap();
    let names: std::collections::BTreeSet<_> = settings.nodes.iter().map(|(node, _)| &node.name).collect();
    assert_eq!((settings.nodes.len(), names.len()), (39_998, 39_998));
}

#[test]
fn another_policy_decides_anew() {
    let lines = "node n1 2xh100\nsubmit a default 1\nsubmit b default 2\nsubmit c default 1\nplan\npass 1m\nend a\nend c\nplan\npass 1m\nend b\nplan";
    let answer = whatif(&past(lines), &["policy fifo"]);
    assert_eq!((answer.before.all.mean_wait_s, answer.after.all.mean_wait_s), (Some(20.0), Some(60.0)));
    assert_ne!(answer.before.digest, answer.after.digest);
}

#[test]
fn what_no_longer_fits_is_named() {
    let lines = "node n1 1xh100\nnode n2 4xh100\nsubmit a default 4\nsubmit b default 1\nplan\npass 1m\nend a\nend b\nplan";
    let answer = whatif(&past(lines), &["nodes-n2"]);
    assert_eq!((answer.before.all.never, answer.after.all.never, answer.after.all.started), (0, 1, 1));
    assert!(answer.after.refused[&1].contains("can never run it"), "{:?}", answer.after.refused);
}

#[test]
fn members_dependencies_holds_and_cancellations_happen_again() {
    let lines = "node n1 2xh100\nsubmit sweep default 1 array=0-3%2\nsubmit last default 1 after=sweep:ok
submit held default 1 held\nsubmit gone default 2 after=sweep:any\nplan\npass 1m\ncancel gone\nend sweep_0\nend sweep_1\nplan
pass 1m\nend sweep_2\nplan\npass 1m\nend sweep_3\nrelease held\nplan\npass 1m\nend last\nend held\nplan";
    let answer = whatif(&past(lines), &["nodes+1"]);
    let Fidelity { jobs, recorded_mean_wait_s, replayed_mean_wait_s } = answer.fidelity;
    assert_eq!((jobs, answer.jobs, answer.before.all.never), (6, 7, 1));
    assert_eq!(recorded_mean_wait_s, replayed_mean_wait_s);
    // The sweep is bound to two at a time whatever there is.
    assert_eq!((recorded_mean_wait_s, answer.after.all.mean_wait_s), (80.0, Some(80.0)));
}

#[test]
fn open_jobs_are_replayed_for_as_long_as_they_are_foreseen() {
    let lines =
        "node n1 1xh100\nsubmit a default 1 limit=10m\nsubmit b default 1\nsubmit c default 1\nplan\npass 1m";
    let past = past(lines);
    let works: Vec<i64> = past.lives.values().map(|life| life.work_ms / 60_000).collect();
    assert_eq!(works, [10, 60, 60]);
    let answer = whatif(&past, &["nodes+2"]);
    assert_eq!(
        (answer.open, answer.before.all.p50_wait_s, answer.after.all.p99_wait_s),
        (3, Some(600.0), Some(0.0))
    );
    assert_eq!(answer.fidelity.jobs, 1);
}

#[test]
fn a_job_cancelled_while_it_waited_works_as_foreseen_if_it_starts_sooner() {
    let lines = "node n1 1xh100\nsubmit a default 1\nsubmit b default 1 limit=10m\nsubmit c default 1\nplan\npass 5m\ncancel b\npass 3m\nend a\nplan\npass 2m\nend c\nplan\npass 1h";
    let past = past(lines);
    let works: Vec<i64> = past.lives.values().map(|life| life.work_ms / 60_000).collect();
    assert_eq!(works, [8, 10, 2]);
    let answer = whatif(&past, &["nodes+1"]);
    assert_eq!((answer.before.all.started, answer.after.all.started), (2, 3));
    // The third gets the first free node, after 8 minutes: the second holds its own for 10, past its cancellation.
    assert_eq!((answer.before.all.p99_wait_s, answer.after.all.p99_wait_s), (Some(480.0), Some(480.0)));
    assert_eq!(answer.after.all.gpu_hours, 20.0 / 60.0);
    assert!(
        answer.assumptions.iter().any(|line| line.starts_with("a job that was cancelled while it waited"))
    );
}

#[test]
fn members_that_waited_when_their_array_was_cancelled_go_only_if_they_wait_here_too() {
    let lines = "node n1 1xh100\nsubmit first default 1\nplan\nsubmit sweep default 1 array=0-3 limit=10m\nplan\npass 5m\ncancel sweep\nplan\npass 5m\nend first\nplan\npass 1h";
    let answer = whatif(&past(lines), &["nodes+2"]);
    assert_eq!((answer.before.all.started, answer.after.all.started), (1, 3));
    assert_eq!(answer.after.all.gpu_hours, 0.5);
}

#[test]
fn jobs_from_before_the_time_take_their_place_and_are_not_counted() {
    let lines = "node n1 1xh100\nsubmit over default 1\nplan\npass 1m\nend over\nplan\nsubmit a default 1\nplan\npass 1h\nsubmit b default 1\nplan\npass 1h\nend a\nplan\npass 1h\nend b\nplan";
    let past = past_since(1_800_000, lines);
    assert_eq!(past.lives.keys().copied().collect::<Vec<_>>(), [JobId::single(2), JobId::single(3)]);
    let answer = whatif(&past, &["nodes+1"]);
    assert_eq!(
        (answer.jobs, answer.before.all.mean_wait_s, answer.after.all.mean_wait_s),
        (1, Some(3600.0), Some(0.0))
    );
    assert_eq!(answer.before.gpu_use, 1.0);
}

#[test]
fn a_job_that_ran_into_its_limit_does_so_again_and_failures_fail_what_depends_on_success() {
    let lines = "node n1 1xh100\nsubmit bad default 1\nsubmit hopeful default 1 after=bad:ok\nsubmit after default 1 after=bad:fail\nplan\npass 1m\nend bad exit=3\nplan\npass 1m\nend after\nplan";
    let answer = whatif(&past(lines), &["nodes+1"]);
    assert_eq!((answer.before.all.started, answer.after.all.started, answer.fidelity.jobs), (2, 2, 2));
}

#[test]
fn a_pool_cannot_change_what_it_does_not_have() {
    let settings = past("node n1 2xh100\nqueue vision\nplan").settings;
    let under =
        |text: &str| settings.under(&[text.parse().unwrap()], &memory).map_err(|error| error.to_string());
    let said = |text: &str| under(text).unwrap_err();
    assert!(said("nodes-1").contains("one must be left"));
    assert!(said("nodes-m1").contains("did you mean n1?"));
    assert!(said("queue vison limit=1").contains("did you mean vision?"));
    assert!(said("policy fcfs").contains("there is no policy"));
    assert_eq!(under("nodes+2xa100:4").unwrap().gpus(), 10);
}

#[test]
fn changes_are_made_together_whatever_their_order() {
    let past = past(IN_TURN);
    let nodes = |changes: &[&str]| -> Result<Vec<String>, String> {
        let changes: Vec<Change> = changes.iter().map(|text| text.parse().unwrap()).collect();
        let under = past.under(&changes, &memory).map_err(|error| error.to_string())?;
        let node =
            |(node, devices): &(NodeSpec, Vec<DeviceSpec>)| format!("{} {}", node.name, devices[0].model);
        Ok(under.nodes.iter().map(node).collect())
    };
    for changes in [["nodes-1", "nodes+2xl4:8"], ["nodes+2xl4:8", "nodes-1"], ["nodes-n1", "nodes+2xl4:8"]] {
        assert_eq!(
            nodes(&changes).unwrap().iter().filter(|node| node.ends_with(" l4")).count(),
            2,
            "{changes:?}"
        );
    }
    assert_eq!(nodes(&["nodes-2", "nodes+2"]).unwrap().len(), 1);
    assert!(nodes(&["nodes-3", "nodes+2"]).unwrap_err().contains("one must be left"));
    for changes in
        [["policy fifo", "policy mlfq"], ["queue default limit=4", "queue default weight=2 limit=5"]]
    {
        assert!(nodes(&changes).unwrap_err().contains("is set twice"), "{changes:?}");
    }
}

#[test]
fn what_a_pool_would_refuse_of_its_queues_is_refused_in_its_words() {
    let past = past("node n1 2xh100\nqueue v guarantee=1\nqueue w\nplan");
    let under = |changes: &[&str]| {
        let changes: Vec<Change> = changes.iter().map(|text| text.parse().unwrap()).collect();
        past.under(&changes, &memory).map(|_| ()).map_err(|error| error.to_string())
    };
    let beyond = "3 of any are guaranteed in all (w 2, v 1), and the pool has 2: lower some";
    assert_eq!(under(&["queue w guarantee=2"]), Err(beyond.into()));
    assert_eq!(under(&["queue w guarantee=2", "nodes+1"]), Ok(()));
    let below = "the limit of any of v is below its guarantee, or that of the queues below it: raise the one or lower the other";
    assert_eq!(under(&["queue v limit=0"]), Err(below.into()));
    assert_eq!(under(&["queue w limit=1", "queue v guarantee=2"]), Ok(()));
}

#[test]
fn why_fewer_start_is_told() {
    let lines = "node n1 2xh100\nnode n2 2xh100\nqueue v guarantee=4\nqueue w\nsubmit a v 2\nsubmit b w 2\nplan\npass 1m\nend a\nend b\nplan";
    let past = past(lines);
    let answer = whatif(&past, &["nodes-n2"]);
    let beyond = "4 of any are guaranteed in all (v 4), and the pool has 2: lower some";
    assert_eq!((&answer.before.beyond, answer.after.beyond.as_deref()), (&None, Some(beyond)));
    let answer = whatif(&past, &["queue w limit=1"]);
    assert_eq!((answer.before.all.started, answer.after.all.started), (2, 1));
    let stranded = "DV-QUEUE-LIMIT: queue w has a limit of 1 GPU, and it asks for 2";
    assert_eq!(answer.after.stranded.get(&2).map(String::as_str), Some(stranded));
    assert!(answer.before.stranded.is_empty(), "{:?}", answer.before.stranded);
}

#[test]
fn a_queues_settings_are_passed_on() {
    let settings = past("node n1 2xh100\nqueue v\nplan").settings;
    let change = "queue v guarantee=1 borrow=h100:2 lend=0 weight=3 priority=-1".parse().unwrap();
    let changed = settings.under(&[change], &memory).unwrap();
    let queue = changed.queues.iter().find(|queue| queue.path == "v").unwrap();
    assert_eq!(queue.guarantee, Limits::from([(Resource::Any, Amount::Finite(1000))]));
    assert_eq!(queue.borrow, Limits::from([(Resource::Model("h100".into()), Amount::Finite(2000))]));
    assert_eq!((queue.weight, queue.priority), (3, -1));
}

#[test]
fn what_is_left_out_is_told() {
    let past = past(
        "node n1 2xh100\nsubmit a default 1\nplan\nqueue v\ndevice n1:1 down\ndevice n1:1 ok\npass 1m\nend a lost\nplan\nrestart\nplan",
    );
    let told = whatif(&past, &["nodes+1"]).assumptions.pop().unwrap();
    for what in ["changes of the queues: 1", "failures of a device: 1", "starts of the daemon: 1"] {
        assert!(told.contains(what), "{what}: {told}");
    }
}
