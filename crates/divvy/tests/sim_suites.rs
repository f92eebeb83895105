//! What `divvy sim pack` and `divvy sim suite` write, and what they say of files that are wrong.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

mod simulator;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;
use simulator::{divvy, done};

/// Asserts an exit code and words on standard error.
#[track_caller]
fn fails(folder: &Path, line: &str, code: i32, words: &str) {
    let said = divvy(folder, line);
    assert_eq!((said.code, said.out.as_str()), (code, ""), "{line}: {}", said.err);
    assert!(said.err.contains(words), "{line}: {}", said.err);
}

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)
}

#[track_caller]
fn has_keys(object: &Value, names: &str) {
    let names: BTreeSet<&str> = names.split_whitespace().collect();
    let keys: BTreeSet<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, names, "{object}");
}

const PACK: &str = "sim pack --nodes nodes.csv --pods pods.csv --order order.bin";
const POLICIES: &str = "fgd, best-fit, dot-product, gpu-packing, gpu-clustering, random, divvy";

#[test]
fn a_packing_is_written_with_a_value_for_each_percent_that_has_arrived() {
    for (policy, knowledge) in [("fgd", "oracle"), ("divvy", "online")] {
        let text = done(&testdata("openb"), &format!("{PACK} --policy {policy} -o json"));
        let object: Value = serde_json::from_str(&text).unwrap();
        has_keys(
            &object,
            "policy knowledge arrived placed never_fit placed_by_class digest wall_s arrived_percent allocated_percent \
             frag_of_idle frag_of_capacity",
        );
        assert_eq!((&object["policy"], &object["knowledge"]), (&policy.into(), &knowledge.into()));
        for bins in ["arrived_percent", "allocated_percent", "frag_of_idle", "frag_of_capacity"] {
            assert_eq!(object[bins].as_array().map(Vec::len), Some(131), "{bins}");
        }
        assert_eq!(object["arrived_percent"][130], 130);
        let classes = &object["placed_by_class"];
        has_keys(classes, "none share 1 2 4 8");
        let placed: u64 = classes.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!((object["arrived"].as_u64(), object["placed"].as_u64()), (Some(32), Some(placed)));
    }
}

#[test]
fn the_rows_of_a_packing_are_those_of_its_object_and_the_table_shows_some_of_them() {
    let here = testdata("openb");
    let object: Value =
        serde_json::from_str(&done(&here, &format!("{PACK} --policy best-fit -o json"))).unwrap();
    let rows = done(&here, &format!("{PACK} --policy best-fit -o csv"));
    let mut lines = rows.lines();
    let header = "arrived_percent,allocated_percent,frag_of_idle,frag_of_capacity,policy,knowledge";
    assert_eq!(lines.next(), Some(header));
    let cell =
        |value: &Value| if value.is_null() { String::new() } else { value.as_f64().unwrap().to_string() };
    let mut count = 0;
    for (bin, line) in lines.enumerate() {
        let values =
            ["allocated_percent", "frag_of_idle", "frag_of_capacity"].map(|name| cell(&object[name][bin]));
        assert_eq!(line, format!("{bin},{},best-fit,online", values.join(",")));
        count += 1;
    }
    assert_eq!(count, 131);
    let table = done(&here, &format!("{PACK} --policy best-fit"));
    let head = format!("best-fit (online): {} of 32 tasks placed in ", object["placed"]);
    assert!(table.starts_with(&head), "{table}");
    assert!(table.contains(&format!("digest {}\n", object["digest"].as_str().unwrap())), "{table}");
    assert!(table.contains("\nARRIVED  ALLOCATED  FRAGMENTED OF IDLE  OF CAPACITY\n"), "{table}");
}

#[test]
fn a_random_packing_follows_from_its_seed() {
    let digest = |seed: u32| {
        let text = done(&testdata("openb"), &format!("{PACK} --policy random --seed {seed} -o json"));
        serde_json::from_str::<Value>(&text).unwrap()["digest"].clone()
    };
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
}

#[test]
fn what_is_wrong_with_a_packing_is_told_with_its_place_and_a_wrong_policy_with_those_that_exist() {
    let here = testdata("openb");
    let told = format!("there is no policy \"fifo\"; there are: {POLICIES}");
    fails(&here, &format!("{PACK} --policy fifo"), 64, &told);
    let files = |nodes: &str, pods: &str, order: &str| {
        format!("sim pack --nodes {nodes} --pods {pods} --order {order} --policy fgd")
    };
    fails(&here, &files("none.csv", "pods.csv", "order.bin"), 66, "cannot open none.csv");
    let no_column = "pods.csv, line 1: there is no column \"sn\" among";
    fails(&here, &files("pods.csv", "pods.csv", "order.bin"), 65, no_column);
    let no_order = "nodes.csv, line 1: this is no order: expected a count of arrivals";
    fails(&here, &files("nodes.csv", "pods.csv", "nodes.csv"), 65, no_order);
    let folder = tempfile::tempdir().unwrap();
    let [nodes, order] = ["nodes.csv", "order.bin"].map(|name| here.join(name).display().to_string());
    let header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli";
    for (rows, told) in [
        ("a,1,1,1,1000\nb,1,1,2,500\n", "line 3, column gpu_milli: \"500\" is not 0 without a GPU"),
        (
            "a,1,1,0,0\nb,1,1,0,0\na,1,1,0,0\n",
            "line 4, column name: \"a\" was there before; expected each only once",
        ),
        ("a,1,1,1,1000\n", "is to arrive, but there are only 1"),
    ] {
        std::fs::write(folder.path().join("pods.csv"), format!("{header}\n{rows}")).unwrap();
        fails(folder.path(), &files(&nodes, "pods.csv", &order), 65, told);
    }
}

#[test]
fn a_suite_is_written_with_every_case_whatever_failed() {
    let text = done(&testdata("suites"), "sim suite kai.json kueue.json -o json");
    let object: Value = serde_json::from_str(&text).unwrap();
    has_keys(&object, "passed failed unsupported cases");
    let cases = object["cases"].as_array().unwrap();
    for case in cases {
        has_keys(case, "id topic strength must prefer got want text");
        has_keys(&case["prefer"], "matched of");
    }
    let count =
        |must: &[&str]| cases.iter().filter(|case| must.contains(&case["must"].as_str().unwrap())).count();
    assert_eq!(object["passed"], count(&["pass"]));
    assert_eq!(object["failed"], count(&["fail", "unsupported"]));
    assert_eq!(object["unsupported"], count(&["unsupported"]));
    let case = |id: &str| cases.iter().find(|case| case["id"] == id).unwrap();
    let failed = case("own/cannot-be");
    assert_eq!((&failed["must"], &failed["text"]), (&"fail".into(), &"a: got wait, wanted start".into()));
    assert_eq!(failed["got"], serde_json::json!({"a": {"wait": 1}}));
    assert_eq!(failed["want"], serde_json::json!([{"jobs": ["a"], "tallies": [{"start": 1}]}]));
    let unsupported = case("own/partition");
    assert_eq!((&unsupported["must"], &unsupported["got"]), (&"unsupported".into(), &Value::Null));
    assert_eq!(unsupported["text"], "no word for partitions (MIG)");
    let half = &case("own/starts")["prefer"];
    assert_eq!((&half["matched"], &half["of"]), (&1.into(), &2.into()));
}

#[test]
fn one_case_of_a_suite_can_be_put_alone_and_under_another_policy() {
    let (here, folder) = (testdata("suites"), tempfile::tempdir().unwrap());
    let one = |more: &str| {
        let text = done(&here, &format!("sim suite kai.json --case own/starts -o json{more}"));
        let object: Value = serde_json::from_str(&text).unwrap();
        (object["passed"].clone(), object["cases"].as_array().unwrap().len())
    };
    assert_eq!(one(""), (1.into(), 1));
    let policy = folder.path().join("own.yaml");
    std::fs::write(&policy, "order: attained\n").unwrap();
    assert_eq!(one(&format!(" --policy {}", policy.display())), (1.into(), 1));
    let table = done(&here, "sim suite kai.json --case own/starts");
    assert!(table.ends_with("the peer's own choices matched: 1 of 2\n"), "{table}");
    fails(&here, "sim suite kai.json --case own/none", 66, "there is no case \"own/none\" among the ");
}

#[test]
fn what_is_wrong_with_a_suite_or_its_policy_is_told_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fails(here, "sim suite none.json", 66, "cannot read none.json");
    for (text, told) in [
        ("", "a.json: line 1: the file is empty; a suite is a JSON array of cases"),
        ("{\"a\": 1}\n", "a.json: line 1: the file begins with \"{\\\"a\\\": 1}\"; a suite is a JSON array"),
        ("[\n{\"id\": \"x\"},\n", "a.json: line 3: a suite is a JSON array of cases: EOF while parsing"),
        (
            "[\n\n{\"id\": \"x\", \"suite\": \"kai\"}]",
            "a.json: line 3, case 1 (x): the field `topic` is missing",
        ),
    ] {
        std::fs::write(here.join("a.json"), text).unwrap();
        fails(here, "sim suite a.json", 65, told);
    }
    std::fs::write(here.join("own.yaml"), "strict: false\norder: fastest\n").unwrap();
    std::fs::write(here.join("a.json"), "[]").unwrap();
    fails(here, "sim suite a.json --policy own.yaml", 65, "own.yaml: policy, line 2");
    fails(here, "sim suite a.json --policy none.yaml", 66, "cannot read none.yaml");
    fails(here, "sim suite - -", 64, "`-` is there 2 times, but standard input can be read only once");
    fails(here, "sim suite a.json -o csv", 64, "[possible values: table, json]");
}
