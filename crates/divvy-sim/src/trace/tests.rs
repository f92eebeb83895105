use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use tempfile::TempDir;

use super::jobs::{Jobs, Selection};
use super::{TraceError, cluster, jobs, speeds};

const HEADER: &str = "job_id,submit_s,gpus,duration_s,queue,user,name,status\n";

fn file(folder: &TempDir, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Reads all jobs of a text, as `id@submit×gpus`, and the error that ended the reading, without the folder.
fn read_text(text: impl AsRef<[u8]>) -> (Vec<String>, Option<String>) {
    let folder = tempfile::tempdir().unwrap();
    outcome(jobs::read(&file(&folder, "jobs.csv", text)), folder.path())
}

fn outcome(jobs: Result<Jobs, TraceError>, folder: &Path) -> (Vec<String>, Option<String>) {
    let plain = |error: TraceError| error.to_string().replace(&format!("{}/", folder.display()), "");
    let jobs = match jobs {
        Ok(jobs) => jobs,
        Err(error) => return (Vec::new(), Some(plain(error))),
    };
    let (mut good, mut wrong) = (Vec::new(), None);
    for job in jobs {
        match job.map(|job| job.arrival) {
            Ok(job) => good.push(format!("{}@{}x{}", job.id, job.submit_s, job.gpus)),
            Err(error) => wrong = Some(plain(error)),
        }
    }
    (good, wrong)
}

#[track_caller]
fn refused(text: impl AsRef<[u8]>, expected: &str) {
    let (_, error) = read_text(text);
    assert_eq!(error.as_deref(), Some(expected));
}

#[test]
fn a_job_is_read_with_its_fate_apart() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("\u{feff}{HEADER}a,5,2,70,vision,eve,\"train, again\",Pass\r\n");
    let job = jobs::read(&file(&folder, "jobs.csv", text)).unwrap().next().unwrap().unwrap();
    let arrival = &job.arrival;
    assert_eq!((arrival.id.as_str(), arrival.submit_s, arrival.gpus), ("a", 5, 2));
    assert_eq!([&arrival.queue, &arrival.user, &arrival.name], ["vision", "eve", "train, again"]);
    assert_eq!((job.fate.duration_s(), job.fate.status()), (70, "Pass"));
}

#[test]
fn columns_may_stand_in_any_order_and_user_name_and_status_may_be_missing() {
    let (jobs, error) = read_text("queue,gpus,extra,submit_s,duration_s,job_id\nq,4,x,10,5,a\n");
    assert_eq!((jobs, error), (vec!["a@10x4".to_owned()], None));
}

#[test]
fn errors_name_the_file_the_line_the_column_and_what_was_expected() {
    let row = |row: &str| format!("{HEADER}a,5,1,70,q,,,\n{row}\n");
    refused(
        row("b,-3,1,70,q,,,"),
        "jobs.csv, line 3, column submit_s: \"-3\" is not a whole number of seconds from 0 to 316224000000",
    );
    refused(
        row("b,5,0,70,q,,,"),
        "jobs.csv, line 3, column gpus: \"0\" is not a whole number of GPUs from 1 to 1000000",
    );
    refused(
        row("b,5,1,1e9,q,,,"),
        "jobs.csv, line 3, column duration_s: \"1e9\" is not a whole number of seconds from 1 to 3162240000",
    );
    refused(
        row("b,5,1,999999999999999,q,,,"),
        "jobs.csv, line 3, column duration_s: \"999999999999999\" is not a whole number of seconds from 1 to 3162240000",
    );
    refused(row("b,5,1,70,,,,"), "jobs.csv, line 3, column queue: \"\" is not a name");
    refused(
        row("b,4,1,70,q,,,"),
        "jobs.csv, line 3, column submit_s: 4 comes after 5 in the line above it; expected jobs sorted by submit_s",
    );
    refused(
        row("a,6,1,70,q,,,"),
        "jobs.csv, line 3, column job_id: \"a\" was there before; expected each only once",
    );
    refused(row("b,6,1"), "jobs.csv, line 3: there are 3 cells; expected 8, as in the header");
}

#[test]
fn a_file_of_another_form_is_told_by_its_header() {
    refused(
        "name,cpu_milli\nx,5\n",
        "jobs.csv, line 1: there is no column \"job_id\" among \"name,cpu_milli\"; expected at least job_id,submit_s,gpus,duration_s,queue",
    );
    refused(
        "",
        "jobs.csv, line 1: there is no column \"job_id\" among nothing (the file is empty); expected at least job_id,submit_s,gpus,duration_s,queue",
    );
    refused(
        "job_id,submit_s,gpus,duration_s,queue,gpus\n",
        "jobs.csv, line 1, column gpus: it is there twice, as number 3 and 6; expected each only once",
    );
    refused(
        "job_id,submit_s,gpus,duration_s,queue,user,user\n",
        "jobs.csv, line 1, column user: it is there twice, as number 6 and 7; expected each only once",
    );
    refused(b"\x00\xff\xfe\n", "jobs.csv, line 1: this is not text in UTF-8; is it a file of another kind?");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = jobs::read(Path::new("/nonexistent/jobs.csv")).map(|_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot open /nonexistent/jobs.csv: No such file or directory (os error 2)"
    );
}

#[test]
fn nothing_is_read_after_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{HEADER}a,1,1,1,q,,,\nb,2,1,1,q,,,\nc,x,1,1,q,,,\nd,4,1,1,q,,,\n");
    let jobs: Vec<_> = jobs::read(&file(&folder, "jobs.csv", text)).unwrap().map(|job| job.is_ok()).collect();
    assert_eq!(jobs, [true, false]);
}

#[test]
fn gzipped_files_are_unpacked_and_one_that_is_cut_off_is_an_error() {
    let rows: String =
        (0..2000).map(|row| format!("job-{row},{row},1,{},q,,,\n", 60 + row * 7919 % 991)).collect();
    let packed = gzip(format!("{HEADER}{rows}").as_bytes());
    let (jobs, error) = read_text(&packed);
    assert_eq!((jobs.len(), error), (2000, None));
    let (jobs, error) = read_text(&packed[..packed.len() / 2]);
    let error = error.unwrap();
    assert!(
        !jobs.is_empty()
            && error.ends_with(
                "the gzip data ends early, or something else follows it: the file is cut off or damaged"
            ),
        "{error}"
    );
    let mut damaged = packed.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 8].fill(0xff);
    assert!(read_text(damaged).1.unwrap().contains("line"));
}

#[test]
fn a_quote_that_is_never_closed_does_not_swallow_the_file() {
    let mut text = format!("{HEADER}a,1,1,1,q,,\"open,\n").into_bytes();
    text.extend(std::iter::repeat_n(b'x', 9 << 20));
    let error = read_text(text).1.unwrap();
    assert!(error.contains("one record is larger than 4 MiB"), "{error}");
}

#[test]
fn files_merge_by_submission_and_the_one_named_first_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        file(&folder, "b.csv", format!("{HEADER}b1,1,1,1,q,,,\nb2,5,1,1,q,,,\nb3,5,1,1,q,,,\n")),
        file(&folder, "a.csv", format!("{HEADER}a1,0,1,1,q,,,\na2,5,1,1,q,,,\na3,6,1,1,q,,,\n")),
    ];
    let (jobs, error) = outcome(jobs::merge(&files, Selection::default()), folder.path());
    assert_eq!((jobs.join(" "), error), ("a1@0x1 b1@1x1 b2@5x1 b3@5x1 a2@5x1 a3@6x1".into(), None));
    let (_, error) =
        outcome(jobs::merge(&[files[0].clone(), files[0].clone()], Selection::default()), folder.path());
    assert_eq!(
        error.as_deref(),
        Some("b.csv, line 2, column job_id: \"b1\" was there before; expected each only once")
    );
}

#[test]
fn a_selection_takes_a_window_then_changes_the_rate_then_repeats() {
    let folder = tempfile::tempdir().unwrap();
    let rows: String = (0..10).map(|row| format!("j{row},{},1,1,q,,,\n", row * 10)).collect();
    let files = [file(&folder, "jobs.csv", format!("{HEADER}{rows}"))];
    let selection = Selection {
        submitted: "20..50".parse().unwrap(),
        rate: Some("4.0".parse().unwrap()),
        repeat: 3,
        shift_s: 12,
    };
    let (jobs, error) = outcome(jobs::merge(&files, selection), folder.path());
    assert_eq!(error, None);
    assert_eq!(
        jobs.join(" "),
        "j2@10x1 j3@15x1 j4@20x1 j2~1@22x1 j5@25x1 j3~1@27x1 j4~1@32x1 j2~2@34x1 j5~1@37x1 j3~2@39x1 j4~2@44x1 j5~2@49x1"
    );
}

#[test]
fn a_shift_beyond_the_end_of_time_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let files = [file(&folder, "jobs.csv", format!("{HEADER}a,1,1,1,q,,,\n"))];
    let selection = Selection { repeat: 2, shift_s: i64::MAX, ..Selection::default() };
    let (jobs, error) = outcome(jobs::merge(&files, selection), folder.path());
    assert_eq!(jobs, ["a@1x1"]);
    assert!(error.unwrap().starts_with("jobs.csv, line 2: shifted, the job would be submitted after"));
}

#[test]
fn jobs_are_written_as_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{HEADER}a,5,2,70,vision,eve,\"train, \"\"again\"\"\",Pass\n");
    let jobs: Vec<_> =
        jobs::read(&file(&folder, "jobs.csv", &text)).unwrap().collect::<Result<_, _>>().unwrap();
    let mut written = Vec::new();
    jobs::write(&jobs, &mut written).unwrap();
    assert_eq!(String::from_utf8(written).unwrap(), text);
}

#[test]
fn nodes_are_read_in_the_order_of_the_file_and_written_as_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let text = "node,model,gpus,cpu_milli,memory_mib,pool\nz,h100,8,96000,524288,a\nb,k80,4,1,0,b\n";
    let nodes = cluster::read(&file(&folder, "cluster.csv", text)).unwrap();
    assert_eq!((nodes[0].node.as_str(), nodes[1].gpus), ("z", 4));
    let mut written = Vec::new();
    cluster::write(&nodes, &mut written).unwrap();
    assert_eq!(String::from_utf8(written).unwrap(), text);
}

#[test]
fn a_cluster_without_nodes_or_with_two_of_one_name_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let header = "node,model,gpus,cpu_milli,memory_mib,pool\n";
    let read = |text: &str| cluster::read(&file(&folder, "cluster.csv", text)).unwrap_err().to_string();
    assert!(read(header).ends_with("cluster.csv, line 1: there is no node; expected at least one"));
    let large = read(&format!("{header}n,m,1000000,1,1,p\n"));
    assert!(
        large
            .ends_with("line 2, column gpus: \"1000000\" is not a number of GPUs of one node from 0 to 1024"),
        "{large}"
    );
    let twice = format!("{header}n,m,8,1,1,p\nn,m,8,1,1,p\n");
    assert!(read(&twice).ends_with("line 3, column node: \"n\" was there before; expected each only once"));
}

#[test]
fn speeds_are_relative_to_the_model_that_durations_are_measured_on() {
    let folder = tempfile::tempdir().unwrap();
    let text = "name,gpus,model,steps_per_s\nr,1,v100,4.0\nr,1,k80,0.5\nr,2,k80,1\n";
    let speeds = speeds::read(&file(&folder, "speeds.csv", text)).unwrap();
    let ratio = speeds.relative("r", 1, "k80").unwrap();
    assert_eq!((ratio.over(), ratio.under()), (1, 8));
    assert_eq!(speeds.relative("r", 1, "p100"), None);
    assert_eq!(speeds.relative("r", 2, "k80"), None, "without a base there is nothing to compare with");
    assert_eq!(speeds.models("r", 1).map(|(model, _)| model).collect::<Vec<_>>(), ["k80", "v100"]);
    let twice = format!("{text}r,1,v100,5\n");
    let error = speeds::read(&file(&folder, "speeds.csv", twice)).unwrap_err().to_string();
    assert!(error.ends_with("line 5, column model: \"v100\" was there before; expected each only once"));
}

#[test]
fn every_public_trace_is_read_whole() {
    let Some(folder) = crate::testdata::shared("jct") else { return };
    for (name, count) in
        [("philly_ee9e8c", 5755), ("philly_2869ce", 992), ("itp_c02", 5778), ("ipsc_a", 8333)]
    {
        let jobs = jobs::read(&folder.join(format!("jobs_{name}.csv"))).unwrap();
        assert_eq!(jobs.map(Result::unwrap).count(), count, "{name}");
    }
    let selection = Selection { submitted: "5270400..10540740".parse().unwrap(), ..Selection::default() };
    let both = ["ee9e8c", "2869ce"].map(|queue| folder.join(format!("jobs_philly_{queue}.csv")));
    assert_eq!(jobs::merge(&both, selection).unwrap().map(Result::unwrap).count(), 4990);
    let copies = Selection { repeat: 7, shift_s: 60 * 86_400, ..Selection::default() };
    let seven = jobs::merge(&[folder.join("jobs_itp_c04.csv")], copies).unwrap().map(Result::unwrap);
    assert_eq!(seven.count(), 110_614);
    assert_eq!(cluster::read(&folder.join("cluster_philly.csv")).unwrap().len(), 80);
    let speeds = speeds::read(&folder.join("gavel_throughputs.csv")).unwrap();
    assert!(speeds.relative("A3C", 1, "k80").is_some());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let folder = tempfile::tempdir().unwrap();
        let path = file(&folder, "any.csv", bytes);
        let _ = jobs::read(&path).map(Iterator::count);
        let _ = cluster::read(&path);
        let _ = speeds::read(&path);
    }

    #[test]
    fn no_cells_make_a_reader_panic(cells in proptest::collection::vec("[-0-9a-z\"~. ]{0,20}", 1..40)) {
        let folder = tempfile::tempdir().unwrap();
        let rows: String = cells.chunks(8).map(|row| format!("{}\n", row.join(","))).collect();
        let _ = read_text(format!("{HEADER}{rows}"));
        let header = "node,model,gpus,cpu_milli,memory_mib,pool\n";
        let rows: String = cells.chunks(6).map(|row| format!("{}\n", row.join(","))).collect();
        let _ = cluster::read(&file(&folder, "cluster.csv", format!("{header}{rows}")));
    }

    #[test]
    fn jobs_read_back_as_written(rows in proptest::collection::vec((0i64..1000, 1u32..64, 1i64..9999, ".*"), 0..20)) {
        let mut submit_s = 0;
        let jobs: Vec<_> = rows.into_iter().enumerate().map(|(row, (gap_s, gpus, duration_s, name))| {
            submit_s += gap_s;
            let name = name.trim().to_owned();
            let arrival = jobs::Arrival {
                id: format!("j{row}"), submit_s, gpus, queue: "q".into(), user: String::new(), name,
            };
            jobs::TraceJob { arrival, fate: jobs::Fate::new(duration_s, String::new()) }
        }).collect();
        let folder = tempfile::tempdir().unwrap();
        let mut written = Vec::new();
        jobs::write(&jobs, &mut written).unwrap();
        let read: Vec<_> =
            jobs::read(&file(&folder, "jobs.csv", written)).unwrap().map(Result::unwrap).collect();
        prop_assert_eq!(read, jobs);
    }
}

#[test]
fn errors_name_the_line_that_an_editor_shows() {
    let row = |at: usize| format!("j{at},{at},1,5,q,,,");
    for (end, gap) in [("\n", ""), ("\r\n", ""), ("\n", "\n\n"), ("\r\n", "\r\n"), ("\r", "")] {
        let blank = gap.matches('\n').count() as u64;
        for bad in 0..4 {
            let rows = (0..4).map(|at| if at == bad { "x,0,none,5,q,,,".into() } else { row(at) });
            let lines: Vec<String> = [HEADER.trim().to_owned()].into_iter().chain(rows).collect();
            let text = format!("{gap}{}", lines.join(&format!("{end}{gap}")));
            let line = (bad as u64 + 2) + blank * (bad as u64 + 2);
            let (_, error) = read_text(&text);
            let error = error.unwrap();
            assert!(error.starts_with(&format!("jobs.csv, line {line}, column gpus")), "{error}: {text:?}");
        }
    }
    let two_lines =
        format!("{HEADER}\r\na,0,1,5,q,,\"x\r\ny\",\r\n\r\nb,1\r\n").replace("status\n", "status\r\n");
    refused(two_lines, "jobs.csv, line 6: there are 2 cells; expected 8, as in the header");
    let many: String = (0..9000).map(|at| format!("{}\r\n", row(at))).collect();
    refused(
        format!("{HEADER}{many}b,9000,0,5,q,,,\r\n"),
        "jobs.csv, line 9002, column gpus: \"0\" is not a whole number of GPUs from 1 to 1000000",
    );
}

#[test]
fn copies_that_are_too_many_to_be_open_at_once_are_told_with_what_to_do() {
    let error = |copy| {
        let source = std::io::Error::from_raw_os_error(24);
        jobs::too_many(TraceError::Open { path: "jobs.csv".into(), source }, copy).to_string()
    };
    assert!(error(0).starts_with("cannot open jobs.csv"), "{}", error(0));
    assert!(
        error(7).starts_with("jobs.csv: with copy 7 too many files would be open at once"),
        "{}",
        error(7)
    );
}
