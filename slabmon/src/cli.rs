//! The command line: what it takes, and the exit codes.
//!
//! Options of the daemon are kept as text here; [`crate::config`] reads them together with the file and the
//! environment, so that a wrong value is told in the same words wherever it comes from.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, builder::PossibleValuesParser, builder::TypedValueParser};
use regex::Regex;

use crate::{
    model::{
        query::{DEFAULT_LIMIT, Grouping, MAX_LIMIT, SortBy, TopQuery, compile_pattern},
        what_if::Wish,
    },
    report::{
        BUILD, Format,
        check::Verdict,
        sections::{MAX_OBJECT_BYTES, MAX_ORDER, ReportOptions, Section, parse_price},
    },
    saved::SavedFiles,
};

/// All went well.
pub const EXIT_OK: u8 = 0;
/// Something failed while running.
pub const EXIT_FAILURE: u8 = 1;
/// The command line is wrong (`EX_USAGE` of sysexits.h).
pub const EXIT_USAGE: u8 = 64;
/// The kernel does not offer what is needed (`EX_UNAVAILABLE`).
pub const EXIT_UNAVAILABLE: u8 = 69;
/// An error in slabmon itself (`EX_SOFTWARE`).
pub const EXIT_SOFTWARE: u8 = 70;
/// A permission is missing (`EX_NOPERM`).
pub const EXIT_NO_PERMISSION: u8 = 77;
/// The configuration is wrong (`EX_CONFIG`).
pub const EXIT_CONFIG: u8 = 78;

/// Where a running daemon is asked unless `--url` says otherwise.
pub const DEFAULT_URL: &str = "http://127.0.0.1:9853";

/// Shows live where the Linux kernel's slab memory goes and who takes it.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "slabmon",
    version = version(),
    after_help = "Settings come from, each over the one before: defaults, the configuration file, the environment, the \
                  command line. An empty variable is as one that is not set.\n\n\
                  Exit codes: 0 ok, 1 failure, 64 wrong usage, 69 the kernel lacks what is needed, 70 an error in \
                  slabmon itself, 77 not permitted, 78 wrong configuration."
)]
pub struct Cli {
    /// Options of the daemon; `check` and a `top` that traces by itself heed them too.
    #[command(flatten)]
    pub daemon: DaemonArgs,
    /// What to do; the daemon runs if nothing is named.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to do other than run the daemon.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Say what this host offers and what it lacks, why, and what to do; exits 0, 69 or 77.
    Check,
    /// Show the caches: from the running daemon, or traced here if none runs.
    Top(TopArgs),
    /// Account for every byte of slab memory, and say what to do about it: of saved files, of the running daemon, or of
    /// this machine's files if none runs.
    Report(ReportArgs),
    /// Compare two saved slabinfo files or two answers of `/caches?format=json`.
    Diff(DiffArgs),
}

/// Options of the daemon, as written.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Daemon")]
pub struct DaemonArgs {
    /// Configuration file (TOML), or `-` for standard input; the default one may be missing
    /// [env: SLABMON_CONFIG_FILE] [default: /etc/slabmon/slabmon.toml]
    #[arg(global = true, long = "config.file", value_name = "PATH")]
    pub config_file: Option<String>,
    /// Only check the configuration; exits 0 or 78
    #[arg(global = true, long = "config.check")]
    pub config_check: bool,
    /// Print the effective configuration as TOML, with the origin of each value, and exit
    #[arg(global = true, long = "print-config")]
    pub print_config: bool,
    /// Address to serve on: `127.0.0.1:9853`, `[::1]:9853`, or `:9853` for all addresses; may be repeated, in the
    /// environment separated by commas [env: SLABMON_WEB_LISTEN_ADDRESS] [default: 127.0.0.1:9853]
    #[arg(global = true, long = "web.listen-address", value_name = "ADDRESS")]
    pub listen_address: Vec<String>,
    /// Path of the metrics [env: SLABMON_WEB_TELEMETRY_PATH] [default: /metrics]
    #[arg(global = true, long = "web.telemetry-path", value_name = "PATH")]
    pub telemetry_path: Option<String>,
    /// How often the counters are read, 100ms to 1m [env: SLABMON_POLL_COUNTERS_INTERVAL] [default: 1s]
    #[arg(global = true, long = "poll.counters-interval", value_name = "DURATION")]
    pub counters_interval: Option<String>,
    /// How often slabinfo is read, 1s to 1h [env: SLABMON_POLL_SLABINFO_INTERVAL] [default: 10s]
    #[arg(global = true, long = "poll.slabinfo-interval", value_name = "DURATION")]
    pub slabinfo_interval: Option<String>,
    /// Whether allocations and frees are traced; without, slabinfo alone is served [env: SLABMON_TRACE]
    /// [default: true]
    #[arg(global = true, long = "trace", value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub trace: Option<String>,
    /// Caches that each CPU can count, a power of two, 64 to 65536 [env: SLABMON_TRACE_SLOTS_PER_CPU] [default: 1024]
    #[arg(global = true, long = "trace.slots-per-cpu", value_name = "N")]
    pub slots_per_cpu: Option<String>,
    /// File with the running kernel's types (BTF), where the kernel has none or a cut one [env: SLABMON_TRACE_BTF]
    /// [default: the kernel's own]
    #[arg(global = true, long = "btf", value_name = "FILE")]
    pub btf: Option<String>,
    /// Most series that one exposition has, 100 to 1000000 [env: SLABMON_METRICS_MAX_SERIES] [default: 2750]
    #[arg(global = true, long = "metrics.max-series", value_name = "N")]
    pub max_series: Option<String>,
    /// Only caches whose name matches are in the metrics; may be repeated, one pattern in the environment
    /// [env: SLABMON_METRICS_CACHE_INCLUDE] [default: all]
    #[arg(global = true, long = "metrics.cache-include", value_name = "REGEX")]
    pub cache_include: Vec<String>,
    /// Caches whose name matches are not in the metrics; may be repeated, one pattern in the environment
    /// [env: SLABMON_METRICS_CACHE_EXCLUDE] [default: none]
    #[arg(global = true, long = "metrics.cache-exclude", value_name = "REGEX")]
    pub cache_exclude: Vec<String>,
    /// Where the host's proc and sys are mounted [env: SLABMON_PATH_ROOT] [default: /]
    #[arg(global = true, long = "path.root", value_name = "PATH")]
    pub root: Option<String>,
    /// error, warn, info, debug or trace [env: SLABMON_LOG_LEVEL] [default: info]
    #[arg(global = true, long = "log.level", value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// text, logfmt or json [env: SLABMON_LOG_FORMAT] [default: text]
    #[arg(global = true, long = "log.format", value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// Keep the capabilities that are only needed at start [env: SLABMON_CAPABILITIES_KEEP] [default: false]
    #[arg(global = true, long = "capabilities.keep", value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub keep_capabilities: Option<String>,
}

/// Options of `slabmon top`.
#[derive(Args, Clone, Debug)]
pub struct TopArgs {
    /// Print once and exit, rather than again and again
    #[arg(long)]
    pub once: bool,
    /// Order of the rows
    #[arg(long, default_value = "bytes", value_parser = PossibleValuesParser::new(SortBy::NAMES).try_map(|word| word.parse::<SortBy>()))]
    pub by: SortBy,
    /// Rows at most
    #[arg(long, value_name = "N", default_value_t = DEFAULT_LIMIT, value_parser = parse_limit)]
    pub limit: usize,
    /// Only caches whose name or alias matches
    #[arg(long, value_name = "REGEX", value_parser = parse_pattern)]
    pub filter: Option<Regex>,
    /// Sum the kmalloc caches of a size, whatever their kind
    #[arg(long, value_parser = PossibleValuesParser::new(Grouping::NAMES).try_map(|word| word.parse::<Grouping>()))]
    pub group: Option<Grouping>,
    /// Time between two prints: seconds, or with a unit
    #[arg(long, value_name = "S", default_value = "2", value_parser = parse_interval)]
    pub interval: Duration,
    /// The daemon to ask
    #[arg(long, default_value = DEFAULT_URL)]
    pub url: String,
    /// What to print
    #[arg(long, default_value = "text", value_parser = PossibleValuesParser::new(Format::NAMES).try_map(|word| word.parse::<Format>()))]
    pub format: Format,
}

impl TopArgs {
    /// The question that these options ask.
    pub fn query(&self) -> TopQuery {
        TopQuery {
            by: self.by,
            limit: Some(self.limit),
            filter: self.filter.clone(),
            grouping: self.group.unwrap_or_default(),
        }
    }
}

/// Options of `slabmon report`.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// A saved /proc/slabinfo; with saved files nothing of this machine is read, and no root is needed
    #[arg(long, value_name = "FILE")]
    pub slabinfo: Option<PathBuf>,
    /// A saved /proc/meminfo
    #[arg(long, value_name = "FILE")]
    pub meminfo: Option<PathBuf>,
    /// A copy of the directory /sys/kernel/slab
    #[arg(long, value_name = "DIR", requires = "slabinfo")]
    pub sysfs: Option<PathBuf>,
    /// A saved /proc/sys/fs/dentry-state
    #[arg(long, value_name = "FILE")]
    pub dentry_state: Option<PathBuf>,
    /// A saved series of meminfo, for the verdict on growth: lines of minutes, Slab, SReclaimable and SUnreclaim in kB
    #[arg(long, value_name = "FILE")]
    pub totals: Option<PathBuf>,
    /// Bytes of a page of the machine that the files are from; else as on this one
    #[arg(long, value_name = "BYTES", value_parser = parse_page_size, requires = "slabinfo")]
    pub page_size: Option<u64>,
    /// Sections in full, rather than the overview; may be repeated
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(Section::NAMES).try_map(|word| word.parse::<Section>()))]
    pub section: Vec<Section>,
    /// Rows of a table at most
    #[arg(long, value_name = "N", value_parser = parse_limit)]
    pub limit: Option<usize>,
    /// What to print
    #[arg(long, default_value = "text", value_parser = PossibleValuesParser::new(Format::REPORT_NAMES).try_map(|word| word.parse::<Format>()))]
    pub format: Format,
    /// What debugging adds to an object, for files without sysfs: 24 on 64-bit, 12 on 32-bit in the estimate of 2007
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MAX_OBJECT_BYTES))]
    pub debug_bytes_per_object: Option<u64>,
    /// Price of a GiB of memory, for the cost of struct page
    #[arg(long, value_name = "X", value_parser = parse_price)]
    pub price_per_gib: Option<f64>,
    /// The cache that --size and --order are about
    #[arg(long, value_name = "NAME")]
    pub cache: Option<String>,
    /// What if its objects had so many bytes
    #[arg(long, value_name = "N", requires = "cache", value_parser = clap::value_parser!(u64).range(1..=MAX_OBJECT_BYTES))]
    pub size: Option<u64>,
    /// What if its slabs were of this order
    #[arg(long, value_name = "N", requires = "cache", value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_ORDER)))]
    pub order: Option<u32>,
    /// The daemon to ask
    #[arg(long, default_value = DEFAULT_URL)]
    pub url: String,
}

impl ReportArgs {
    /// What is wanted of the report.
    pub fn options(&self) -> ReportOptions {
        ReportOptions {
            sections: self.section.clone(),
            limit: self.limit,
            debug_bytes_per_object: self.debug_bytes_per_object,
            price_per_gib: self.price_per_gib,
            cache: self.cache.clone(),
            wish: Wish { size_bytes: self.size, order: self.order },
        }
    }

    /// The saved files that are named.
    pub fn saved_files(&self) -> SavedFiles {
        SavedFiles {
            slabinfo: self.slabinfo.clone(),
            meminfo: self.meminfo.clone(),
            sysfs: self.sysfs.clone(),
            dentry_state: self.dentry_state.clone(),
            totals: self.totals.clone(),
            page_size_bytes: self.page_size,
        }
    }
}

/// Options of `slabmon diff`.
#[derive(Args, Clone, Debug)]
pub struct DiffArgs {
    /// The earlier one: a saved slabinfo, or an answer of /caches?format=json
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// The later one
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,
    /// Bytes of a page of the machine that slabinfo files are from; else as on this one
    #[arg(long, value_name = "BYTES", value_parser = parse_page_size)]
    pub page_size: Option<u64>,
    /// Rows at most
    #[arg(long, value_name = "N", default_value_t = DEFAULT_LIMIT, value_parser = parse_limit)]
    pub limit: usize,
    /// What to print
    #[arg(long, default_value = "text", value_parser = PossibleValuesParser::new(Format::REPORT_NAMES).try_map(|word| word.parse::<Format>()))]
    pub format: Format,
}

fn version() -> String {
    match BUILD.revision {
        Some(revision) => format!("{} (revision {revision})", BUILD.version),
        None => format!("{} (revision unknown)", BUILD.version),
    }
}

fn parse_limit(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|limit| (1..=MAX_LIMIT).contains(limit))
        .ok_or_else(|| format!("give a whole number from 1 to {MAX_LIMIT}"))
}

fn parse_page_size(text: &str) -> Result<u64, String> {
    text.parse::<u64>()
        .ok()
        .filter(|bytes| bytes.is_power_of_two() && (4096..=1 << 20).contains(bytes))
        .ok_or_else(|| "give a power of two from 4096 to 1048576".to_owned())
}

fn parse_pattern(text: &str) -> Result<Regex, String> {
    compile_pattern(text).map_err(|error| error.to_string())
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let duration = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => humantime::parse_duration(text).ok(),
    };
    duration
        .filter(|interval| (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(interval))
        .ok_or_else(|| "give seconds from 0.1 to 3600".to_owned())
}

/// Reads a command line, the program's name first. The error is for [`clap::Error::print`] and [`exit_code_of`].
pub fn parse_from<I, T>(arguments: I) -> Result<Cli, clap::Error>
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    Cli::try_parse_from(arguments)
}

/// 0 for `--help` and `--version`, 64 for a command line that is wrong.
pub fn exit_code_of(error: &clap::Error) -> u8 {
    if error.use_stderr() { EXIT_USAGE } else { EXIT_OK }
}

/// Exit code of `slabmon check`.
pub fn exit_code_of_check(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Ready => EXIT_OK,
        Verdict::NotPermitted => EXIT_NO_PERMISSION,
        Verdict::KernelCannot => EXIT_UNAVAILABLE,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_and_version_exit_0_and_mistakes_64() {
        let cases: [(&[&str], u8); 9] = [
            (&["slabmon", "--help"], 0),
            (&["slabmon", "--version"], 0),
            (&["slabmon", "top", "--help"], 0),
            (&["slabmon", "--nonsense"], 64),
            (&["slabmon", "nonsense"], 64),
            (&["slabmon", "top", "--by", "colour"], 64),
            (&["slabmon", "top", "--limit", "0"], 64),
            (&["slabmon", "top", "--filter", "("], 64),
            (&["slabmon", "top", "--interval", "0.01"], 64),
        ];
        for (arguments, code) in cases {
            let error = parse_from(arguments).unwrap_err();
            assert_eq!(exit_code_of(&error), code, "{arguments:?}");
        }
    }

    #[test]
    fn the_version_tells_the_revision() {
        let text = parse_from(["slabmon", "--version"]).unwrap_err().to_string();
        assert!(text.starts_with(&format!("slabmon {} (revision ", env!("CARGO_PKG_VERSION"))), "{text}");
    }

    #[test]
    fn a_wrong_order_is_told_with_the_right_ones() {
        let text = parse_from(["slabmon", "top", "--by=colour"]).unwrap_err().to_string();
        assert!(
            text.contains("bytes, objects, alloc_rate, free_rate, growth, requested, name"),
            "all orders are listed: {text}"
        );
    }

    #[test]
    fn top_asks_what_its_options_say() {
        let cli = parse_from([
            "slabmon",
            "top",
            "--once",
            "--by=growth",
            "--limit=3",
            "--filter=^k",
            "--group=class",
            "--interval=500ms",
            "--format=csv",
            "--url=http://[::1]:1",
        ])
        .unwrap();
        let Some(Command::Top(top)) = cli.command else { panic!("top was asked for") };
        assert!(top.once);
        assert_eq!((top.interval, top.format, &*top.url), (Duration::from_millis(500), Format::Csv, "http://[::1]:1"));
        let query = top.query();
        assert_eq!((query.by, query.limit, query.grouping), (SortBy::Growth, Some(3), Grouping::Class));
        assert_eq!(query.filter.unwrap().as_str(), "^k");
    }

    #[test]
    fn verdicts_have_their_exit_codes() {
        assert_eq!(exit_code_of_check(Verdict::Ready), 0);
        assert_eq!(exit_code_of_check(Verdict::KernelCannot), 69);
        assert_eq!(exit_code_of_check(Verdict::NotPermitted), 77);
    }
}
