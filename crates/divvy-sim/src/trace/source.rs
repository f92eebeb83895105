//! A trace that is read more than once, so that it need not be kept: first to see what is in it, then to replay it.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;

use siphasher::sip::SipHasher13;

use super::TraceError;
use super::jobs::{self, Selection, TraceJob};

/// Where the jobs of a trace are read from, as often as it takes.
#[derive(Debug)]
pub enum Trace {
    /// From files, job by job.
    Files {
        /// Which, in their order.
        files: Vec<PathBuf>,
        /// What is taken of them.
        selection: Selection,
    },
    /// From memory.
    Jobs(Vec<TraceJob>),
}

/// What is known of a trace after it was read to its end once: its rows are right, and no name recurs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// How many jobs there are.
    pub jobs: usize,
    /// How many of each queue.
    pub by_queue: BTreeMap<String, usize>,
}

impl Trace {
    /// A trace of several files. Files that can be read only once, such as pipes, are read into memory.
    pub fn of_files(files: &[PathBuf], selection: Selection) -> Result<Self, TraceError> {
        let once = |file: &PathBuf| std::fs::metadata(file).is_ok_and(|found| !found.is_file());
        if files.iter().any(once) {
            return Ok(Self::Jobs(jobs::merge(files, selection)?.collect::<Result<_, _>>()?));
        }
        Ok(Self::Files { files: files.to_vec(), selection })
    }

    /// Returns its jobs, in the order of their submission. Whether a name recurs is not checked again.
    pub fn jobs(&self) -> Result<Box<dyn Iterator<Item = Result<TraceJob, TraceError>> + '_>, TraceError> {
        Ok(match self {
            Self::Files { files, selection } => Box::new(jobs::merge_known(files, *selection)?),
            Self::Jobs(jobs) => Box::new(jobs.iter().cloned().map(Ok)),
        })
    }

    /// Reads all of it once. Eight bytes of each name are kept until the end.
    pub fn survey(&self) -> Result<Survey, TraceError> {
        self.survey_by(short_hash)
    }

    fn survey_by(&self, hash: impl Fn(&str) -> u64) -> Result<Survey, TraceError> {
        let (mut survey, mut names) = (Survey::default(), Vec::new());
        // Whoever made these jobs saw to it that no name recurs.
        if let Self::Jobs(jobs) = self {
            jobs.iter().for_each(|job| survey.count(&job.arrival.queue));
            return Ok(survey);
        }
        for job in self.jobs()? {
            let job = job?;
            names.push(hash(&job.arrival.id));
            survey.count(&job.arrival.queue);
        }
        names.sort_unstable();
        if names.windows(2).any(|two| two[0] == two[1]) {
            self.look_for_a_name_that_recurs()?;
        }
        Ok(survey)
    }

    /// Two names are equal, or their short hashes collide, as in one of some ten million traces of a million jobs:
    /// longer hashes tell which, and where the second name stands.
    fn look_for_a_name_that_recurs(&self) -> Result<(), TraceError> {
        match self {
            Self::Files { files, selection } => {
                jobs::merge(files, *selection)?.try_for_each(|job| job.map(drop))
            }
            Self::Jobs(_) => Ok(()),
        }
    }
}

impl Survey {
    fn count(&mut self, queue: &str) {
        self.jobs += 1;
        match self.by_queue.get_mut(queue) {
            Some(jobs) => *jobs += 1,
            None => {
                self.by_queue.insert(queue.to_owned(), 1);
            }
        }
    }
}

fn short_hash(name: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    name.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(texts: &[&str]) -> (tempfile::TempDir, Vec<PathBuf>) {
        let folder = tempfile::tempdir().unwrap();
        let write = |(at, rows): (usize, &&str)| {
            let path = folder.path().join(format!("{at}.csv"));
            std::fs::write(&path, format!("job_id,submit_s,gpus,duration_s,queue\n{rows}")).unwrap();
            path
        };
        let paths = texts.iter().enumerate().map(write).collect();
        (folder, paths)
    }

    fn trace(paths: &[PathBuf]) -> Trace {
        Trace::of_files(paths, Selection::default()).unwrap()
    }

    #[test]
    fn a_survey_counts_the_jobs_of_each_queue_over_all_files() {
        let (_folder, paths) = files(&["a,0,1,1,q\nb,5,1,1,r\n", "c,3,1,1,q\n"]);
        let by_queue = BTreeMap::from([("q".to_owned(), 2), ("r".to_owned(), 1)]);
        assert_eq!(trace(&paths).survey().unwrap(), Survey { jobs: 3, by_queue });
        let ids: Vec<_> = trace(&paths).jobs().unwrap().map(|job| job.unwrap().arrival.id).collect();
        assert_eq!(ids, ["a", "c", "b"]);
    }

    #[test]
    fn a_name_that_recurs_is_told_with_its_place_and_hashes_that_are_equal_by_chance_are_no_matter() {
        let (_folder, paths) = files(&["a,0,1,1,q\nb,5,1,1,r\n", "c,3,1,1,q\nb,9,1,1,q\n"]);
        let error = trace(&paths).survey().unwrap_err().to_string();
        assert!(
            error.ends_with("1.csv, line 3, column job_id: \"b\" was there before; expected each only once"),
            "{error}"
        );
        assert_eq!(trace(&paths[..1]).survey_by(|_| 7).unwrap().jobs, 2);
    }

    #[test]
    fn a_copy_may_not_have_the_name_of_a_job() {
        let (_folder, paths) = files(&["a,0,1,1,q\na~1,5,1,1,q\n"]);
        let selection = Selection { repeat: 2, shift_s: 100, ..Selection::default() };
        let trace = Trace::of_files(&paths, selection).unwrap();
        assert!(trace.survey().unwrap_err().to_string().contains("\"a~1\" was there before"));
    }
}
