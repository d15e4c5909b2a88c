//! `slabmon report` and `slabmon diff`.

use std::time::{Duration, Instant};

use super::{AppError, CLIENT_TIMEOUT, print};
use crate::{
    cli::{DiffArgs, ReportArgs},
    config::Config,
    host::facts::HostFacts,
    http,
    model::snapshot::Snapshot,
    plan::{PlanOptions, ProbePlan},
    poll::{Intervals, Poller},
    readers::Readers,
    report::{self, BUILD, Context, client},
};

/// `slabmon report`: of saved files, of the daemon that runs, else of this machine's files.
pub(super) fn report(config: &Config, arguments: &ReportArgs) -> Result<u8, AppError> {
    let files = arguments.saved_files();
    if files.is_any() {
        return print(&render(&files.read()?, arguments)?);
    }
    match client::fetch_report(&arguments.url, &arguments.options(), arguments.format, CLIENT_TIMEOUT) {
        Ok(text) => print(&text),
        Err(error) if error.is_refused() => print(&render(&read_machine(config), arguments)?),
        Err(error) => Err(error.into()),
    }
}

fn render(snapshot: &Snapshot, arguments: &ReportArgs) -> Result<String, AppError> {
    let context = Context { build: BUILD, age: Duration::ZERO };
    http::render_report(snapshot, &arguments.options(), arguments.format, &context).map_err(unwritable)
}

fn unwritable(error: csv::Error) -> AppError {
    AppError::Io { what: "the report could not be written", error: std::io::Error::other(error) }
}

/// One reading of this machine's files, nothing traced. What cannot be read is unknown.
fn read_machine(config: &Config) -> Snapshot {
    let started = Instant::now();
    let facts = HostFacts::read(config.root(), config.btf());
    let mut plan = ProbePlan::new(&facts, &PlanOptions { trace: false, slots_per_cpu: config.slots_per_cpu() });
    let readers = Readers::open(config.root(), &facts, &mut plan);
    let intervals = Intervals { counters: config.counters_interval(), slabinfo: config.slabinfo_interval() };
    Poller::new(None, readers, plan.features, facts.for_status(), intervals, started).poll()
}

/// `slabmon diff`.
pub(super) fn diff(arguments: &DiffArgs) -> Result<u8, AppError> {
    let [before, after] =
        [&arguments.before, &arguments.after].map(|path| crate::saved::read_caches(path, arguments.page_size));
    let changes = crate::model::diff::diff(&before?, &after?);
    let text = match arguments.format {
        report::Format::Json => http::render_diff(&changes, arguments.limit),
        report::Format::Text => report::document::text(&report::diff::diff(&changes, arguments.limit)),
        report::Format::Markdown => report::document::markdown(&report::diff::diff(&changes, arguments.limit)),
        report::Format::Csv => {
            report::document::csv(&report::diff::diff(&changes, arguments.limit)).map_err(unwritable)?
        }
    };
    print(&text)
}
