//! `-o` of those verbs that report one thing.

use serde::Serialize;

use crate::failure::Failure;

/// How a report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// For people.
    #[default]
    Table,
    /// One object.
    Json,
}

/// `-o`, where there is one report.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(super) struct FormFlag {
    /// table or json
    #[arg(
        short = 'o',
        long = "output",
        value_name = "FORMAT",
        value_enum,
        default_value_t,
        hide_possible_values = true
    )]
    output: Form,
}

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
