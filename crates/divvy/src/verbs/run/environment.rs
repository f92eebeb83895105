//! The environment of a job: what the submitting shell exports, then a file, then what the job says.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use divvy_api::JobFile;

use crate::exit::Exit;
use crate::failure::Failure;

/// The variables that a job gets at least: hardly any program runs without them.
const ALWAYS: [&str; 6] = ["HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG"];

/// Variables of the job in which this runs, if any: they do not belong to the new job.
const OF_ANOTHER_JOB: [&str; 10] = [
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "ROLE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
];

type Environment = BTreeMap<String, String>;

/// The whole environment of a job.
pub(super) fn of_job(
    job: &JobFile,
    shell: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Environment, Failure> {
    let mut environment = exported(job.export.as_deref().unwrap_or("ALL"), of_shell(shell))?;
    if let Some(file) = &job.env_file {
        let path = Path::new(file);
        let text = super::read_file(path)?;
        let variables = parse_file(&text).map_err(|(line, what)| {
            Failure::new(Exit::BadData, format!("{file}:{line}: {what}")).fix("write NAME=value, one a line")
        })?;
        environment.extend(variables);
    }
    environment.extend(job.env.iter().map(|(name, value)| (name.clone(), value.clone())));
    match environment.iter().find(|(name, value)| !is_name(name) || value.contains('\0')) {
        None => Ok(environment),
        Some((name, _)) => {
            Err(Failure::new(Exit::BadData, format!("{name:?} cannot be a variable of the environment")))
        }
    }
}

/// The shell's variables, without those that are not UTF-8: they cannot travel.
fn of_shell(shell: impl Iterator<Item = (OsString, OsString)>) -> Environment {
    let texts = shell.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    // Shells may export names that a file or a flag could not.
    let mut environment: Environment = texts.filter(|(name, _)| is_name(name)).collect();
    if environment.contains_key("DIVVY_JOB_ID") {
        environment.retain(|name, _| !name.starts_with("DIVVY_") && !OF_ANOTHER_JOB.contains(&name.as_str()));
    }
    environment
}

fn exported(which: &str, shell: Environment) -> Result<Environment, Failure> {
    let wanted: Vec<&str> = match which {
        "ALL" | "all" => return Ok(shell),
        "NONE" | "none" => Vec::new(),
        names => names.split(',').map(str::trim).collect(),
    };
    if let Some(name) = wanted.iter().find(|name| !is_name(name)) {
        return Err(Failure::usage(format!("--export: {name:?} is no name of a variable"))
            .fix("write ALL, NONE or A,B"));
    }
    let keep = |name: &str| ALWAYS.contains(&name) || wanted.contains(&name);
    Ok(shell.into_iter().filter(|(name, _)| keep(name)).collect())
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

/// Reads `NAME=value` lines as `docker --env-file` and shells write them: comments, `export`, quotes.
fn parse_file(text: &str) -> Result<Vec<(String, String)>, (usize, String)> {
    let mut variables = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
        let Some((name, value)) = line.split_once('=') else {
            return Err((at + 1, format!("there is no = in {line:?}")));
        };
        if !is_name(name) || name.contains(char::is_whitespace) {
            return Err((at + 1, format!("{name:?} is no name of a variable")));
        }
        variables.push((name.to_owned(), unquoted(value.trim()).to_owned()));
    }
    Ok(variables)
}

fn unquoted(value: &str) -> &str {
    let within = |quote: char| value.strip_prefix(quote).and_then(|value| value.strip_suffix(quote));
    within('"').or_else(|| within('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shell(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    fn of(export: &str, pairs: &[(&str, &str)]) -> String {
        let mut job = JobFile { export: Some(export.into()), ..JobFile::default() };
        job.env.insert("OWN".into(), "1".into());
        let environment = of_job(&job, shell(pairs).into_iter()).unwrap();
        environment.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn all_none_or_some_of_the_shells_variables_are_exported() {
        let pairs = [("PATH", "/bin"), ("TOKEN", "t"), ("X", "y"), ("OWN", "0")];
        assert_eq!(of("ALL", &pairs), "OWN=1 PATH=/bin TOKEN=t X=y");
        assert_eq!(of("NONE", &pairs), "OWN=1 PATH=/bin");
        assert_eq!(of("X, TOKEN", &pairs), "OWN=1 PATH=/bin TOKEN=t X=y");
        assert!(exported("A B=", Environment::new()).is_err());
    }

    #[test]
    fn a_job_submitted_by_a_job_does_not_inherit_its_rank() {
        let pairs = [("DIVVY_JOB_ID", "3"), ("DIVVY_SOCKET", "/s"), ("RANK", "2"), ("HOME", "/h")];
        assert_eq!(of("ALL", &pairs), "HOME=/h OWN=1");
        assert_eq!(of("ALL", &[("RANK", "2")]), "OWN=1 RANK=2");
    }

    #[test]
    fn files_of_variables_are_read_as_people_write_them() {
        let text = "# comment\n\nA=1\nexport B=\"two words\"\n C='3' \nD=a=b\nE=\n";
        let pairs = parse_file(text).unwrap();
        let told: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(told, ["A=1", "B=two words", "C=3", "D=a=b", "E="]);
        assert_eq!(parse_file("A=1\nnonsense\n").unwrap_err().0, 2);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_of_variables_panic(text in "(?s).*") {
            let _ = parse_file(&text);
        }
    }
}
