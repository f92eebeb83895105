//! What the jobs themselves wrote while they ran: a witness that does not ask the daemon.

use std::collections::BTreeMap;

/// The script that every job runs, with its length in seconds and its exit code. It locks a file per device as long as
/// any process of it lives, and says when it starts and ends; each line is one write to a file opened for appending.
pub(super) const SCRIPT: &str = r#"
tell() { echo "$1 $DIVVY_JOB_ID $DIVVY_ATTEMPT $DIVVY_RANK $2" >> "$JOURNAL"; }
tell start "$CUDA_VISIBLE_DEVICES"
fd=3 IFS=,
for device in $CUDA_VISIBLE_DEVICES; do
    eval "exec $fd>>\"\$HELD/$device\""
    flock -n $fd || tell twice "$device"
    fd=$((fd + 1))
done
[ "$1" = 0 ] || sleep "$1"
tell end
exit "$2"
"#;

/// A run of a task: job, attempt, rank.
pub(super) type Run = (String, u32, u32);

/// What was written.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Journal {
    pub(super) starts: BTreeMap<Run, u32>,
    pub(super) ends: BTreeMap<Run, u32>,
    /// Devices that another task held when a task got them.
    pub(super) twice: Vec<String>,
}

impl Journal {
    /// Reads the journal. A last line without an end is still being written.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let mut journal = Self::default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [what, job, attempt, rank, rest @ ..] = words.as_slice() else {
                return Err(format!("a line of the journal is torn: {line:?}"));
            };
            let (Ok(attempt), Ok(rank)) = (attempt.parse(), rank.parse()) else {
                return Err(format!("a line of the journal is torn: {line:?}"));
            };
            let run = ((*job).to_owned(), attempt, rank);
            match *what {
                "start" => *journal.starts.entry(run).or_default() += 1,
                "end" => *journal.ends.entry(run).or_default() += 1,
                _ => journal.twice.push(format!("{} was held already when job {job} had it", rest.join(" "))),
            }
        }
        Ok(journal)
    }

    /// What is wrong with the journal, whatever the daemon says.
    pub(super) fn findings(&self) -> Vec<String> {
        let often = |what, runs: &BTreeMap<Run, u32>| {
            let often = runs.iter().filter(|(_, count)| **count > 1);
            often
                .map(|((job, attempt, rank), count)| {
                    format!("attempt {attempt} of job {job}, task {rank}, {what} {count} times")
                })
                .collect::<Vec<_>>()
        };
        let mut findings = self.twice.clone();
        findings.extend(often("started", &self.starts));
        findings.extend(often("ended", &self.ends));
        let ended = self.ends.keys().filter(|run| !self.starts.contains_key(*run));
        findings.extend(ended.map(|(job, ..)| format!("job {job} ended and never started")));
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_devices_that_were_had_twice_are_found() {
        let good = Journal::read("start 1 1 0 GPU-a\nend 1 1 0 \nstart 2_3 1 0 \nsta").unwrap();
        assert_eq!(good.findings(), [""; 0]);
        assert_eq!((good.starts.len(), good.ends.len()), (2, 1));
        let bad =
            Journal::read("start 1 1 0 GPU-a\ntwice 1 1 0 GPU-a\nstart 1 1 0 GPU-b\nend 4 1 0 \n").unwrap();
        assert_eq!(
            bad.findings(),
            [
                "GPU-a was held already when job 1 had it",
                "attempt 1 of job 1, task 0, started 2 times",
                "job 4 ended and never started"
            ]
        );
        assert!(Journal::read("start 1\n").is_err());
    }
}
