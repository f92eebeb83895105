//! `near` and `apart` of a job file: which other tasks a job's tasks want near them, and which not.

use divvy_api::types::{JobFile, OthersFile, Problem, RoleFile};
use divvy_core::model::affinity::{Affinity, Others};
use divvy_core::model::choice::{Condition, Is};
use divvy_core::model::topology::{INSIDE_A_NODE, NODE};

use super::incoming::bad;

/// The most wishes of one kind per role, and the most labels per wish: each is checked for each task that is placed.
const MOST: usize = 16;
/// The longest text of a label or level, in bytes.
const LONGEST_BYTES: usize = 200;

/// Returns what a role's tasks want of other tasks: what the role says, else what the job says.
pub(super) fn affinity(job: &JobFile, role: &RoleFile, prefix: &str) -> Result<Affinity, Problem> {
    let said = |own: &'_ [OthersFile], of_job: &'_ [OthersFile], name: &str| {
        let (all, field) = match own.is_empty() {
            true => (of_job, name.to_owned()),
            false => (own, format!("{prefix}{name}")),
        };
        if all.len() > MOST {
            return Err(bad(field, format!("no more than {MOST} of them")));
        }
        all.iter().enumerate().map(|(at, file)| others(file, &format!("{field}[{at}]"))).collect()
    };
    let near = said(&role.near, &job.near, "near")?;
    Ok(Affinity { near, apart: said(&role.apart, &job.apart, "apart")?, ..Affinity::default() })
}

fn others(file: &OthersFile, field: &str) -> Result<Others, Problem> {
    let is_long = |text: &String| text.len() > LONGEST_BYTES;
    if file.labels.is_empty() {
        return Err(bad(format!("{field}.labels"), "it does not say who is meant")
            .with_fix("name labels of the other jobs: {labels: {app: db}}"));
    }
    if file.labels.len() > MOST || file.labels.iter().any(|(key, value)| is_long(key) || is_long(value)) {
        let most = format!("at most {MOST} labels, keys and values of at most {LONGEST_BYTES} bytes");
        return Err(bad(format!("{field}.labels"), most));
    }
    let within = file.within.as_deref().unwrap_or(NODE);
    if within.is_empty() || within.len() > LONGEST_BYTES || INSIDE_A_NODE.contains(&within) {
        return Err(bad(
            format!("{field}.within"),
            "it is `node`, another level that the pool's nodes name, or a label of nodes",
        ));
    }
    let who = file.labels.iter();
    let who = who.map(|(label, value)| Condition { label: label.clone(), is: Is::In(vec![value.clone()]) });
    Ok(Others { who: who.collect(), within: within.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(json: serde_json::Value) -> JobFile {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn what_a_role_leaves_out_is_taken_from_the_job() {
        let job = job(serde_json::json!({
            "near": [{"labels": {"app": "db"}, "within": "rack"}], "apart": [{"labels": {"app": "web"}}],
        }));
        let own: RoleFile =
            serde_json::from_value(serde_json::json!({"near": [{"labels": {"app": "x"}}]})).unwrap();
        let read = affinity(&job, &own, "roles[0].").unwrap();
        let words = |all: &[Others]| all.iter().map(|it| format!("{it} {}", it.within)).collect::<Vec<_>>();
        assert_eq!(
            (words(&read.near), words(&read.apart)),
            (vec!["app=x node".into()], vec!["app=web node".into()])
        );
        let read = affinity(&job, &RoleFile::default(), "").unwrap();
        assert_eq!(words(&read.near), ["app=db rack"]);
    }

    #[test]
    fn a_wish_that_says_nothing_is_refused_by_its_field() {
        for (wish, field) in [
            (serde_json::json!({}), "apart[0].labels"),
            (serde_json::json!({"labels": {"a": "b"}, "within": ""}), "apart[0].within"),
            (serde_json::json!({"labels": {"a": "b"}, "within": "nvlink"}), "apart[0].within"),
        ] {
            let job = job(serde_json::json!({"apart": [wish]}));
            let problem = affinity(&job, &RoleFile::default(), "").unwrap_err();
            assert_eq!(problem.field.as_deref(), Some(field));
        }
    }
}
