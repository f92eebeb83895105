//! `-o` of those verbs that report one thing.

use serde::Serialize;

use crate::failure::Failure;
use crate::output::{FormatFlag, Written};

/// How a report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Form {
    /// For people.
    #[default]
    Table,
    /// One object.
    Json,
}

impl Written for Form {
    const NAMES: &'static str = "table or json";
    const USUAL: &'static str = "table";
}

/// `-o`, where there is one report.
pub(super) type FormFlag = FormatFlag<Form>;

impl FormFlag {
    /// A report as text: for people as it is rendered.
    pub(super) fn text<T: Serialize>(
        self,
        report: &T,
        render: impl FnOnce() -> String,
    ) -> Result<String, Failure> {
        match self.output {
            Form::Table => Ok(render()),
            Form::Json => Ok(serde_json::to_string(report)? + "\n"),
        }
    }
}
