//! The daemon's configuration: defaults, then the file, then the environment, then the command line, each over the one
//! before; validated as a whole, with the origin of each value kept.
//!
//! Each setting is one [`Setting`], with its key in the file, its variable and its option; a wrong value is told with the
//! place where it was written.

use std::{
    ffi::OsString,
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use regex::Regex;

use crate::{
    cli::{Cli, DaemonArgs, EXIT_CONFIG, EXIT_USAGE},
    model::query::{compile_pattern, nearest},
};

mod file;
mod values;

pub use values::{ListenAddress, LogFormat, LogLevel, TelemetryPath};

use file::{apply_file, read_file};

/// Read if no other file is named; may be missing.
pub const DEFAULT_FILE: &str = "/etc/slabmon/slabmon.toml";
/// The variable that names the file.
const FILE_VARIABLE: &str = "SLABMON_CONFIG_FILE";
/// What the name of each of our variables begins with.
const PREFIX: &str = "SLABMON_";
/// The option that names the file.
const FILE_OPTION: &str = "--config.file";
/// Longest file, bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Most entries of a list.
const MAX_LIST: usize = 64;
/// Paths that the HTTP API has for itself.
const OWN_PATHS: [&str; 5] = ["/", "/caches", "/status", "/healthz", "/readyz"];

/// One setting and the names that it goes by.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    key: Key,
    /// Table in the file.
    pub section: &'static str,
    /// Key in that table.
    pub name: &'static str,
    /// Variable in the environment.
    pub variable: &'static str,
    /// Option on the command line.
    pub option: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    ListenAddress,
    TelemetryPath,
    CountersInterval,
    SlabinfoInterval,
    TraceEnabled,
    SlotsPerCpu,
    Btf,
    MaxSeries,
    CacheInclude,
    CacheExclude,
    Root,
    LogLevel,
    LogFormat,
    KeepCapabilities,
}

const fn setting(
    key: Key,
    section: &'static str,
    name: &'static str,
    variable: &'static str,
    option: &'static str,
) -> Setting {
    Setting { key, section, name, variable, option }
}

/// All settings, in the order in which they are printed; a section's settings are together.
pub const SETTINGS: [Setting; 14] = [
    setting(Key::ListenAddress, "web", "listen_address", "SLABMON_WEB_LISTEN_ADDRESS", "--web.listen-address"),
    setting(Key::TelemetryPath, "web", "telemetry_path", "SLABMON_WEB_TELEMETRY_PATH", "--web.telemetry-path"),
    setting(
        Key::CountersInterval,
        "poll",
        "counters_interval",
        "SLABMON_POLL_COUNTERS_INTERVAL",
        "--poll.counters-interval",
    ),
    setting(
        Key::SlabinfoInterval,
        "poll",
        "slabinfo_interval",
        "SLABMON_POLL_SLABINFO_INTERVAL",
        "--poll.slabinfo-interval",
    ),
    setting(Key::TraceEnabled, "trace", "enabled", "SLABMON_TRACE", "--trace"),
    setting(Key::SlotsPerCpu, "trace", "slots_per_cpu", "SLABMON_TRACE_SLOTS_PER_CPU", "--trace.slots-per-cpu"),
    setting(Key::Btf, "trace", "btf", "SLABMON_TRACE_BTF", "--btf"),
    setting(Key::MaxSeries, "metrics", "max_series", "SLABMON_METRICS_MAX_SERIES", "--metrics.max-series"),
    setting(Key::CacheInclude, "metrics", "cache_include", "SLABMON_METRICS_CACHE_INCLUDE", "--metrics.cache-include"),
    setting(Key::CacheExclude, "metrics", "cache_exclude", "SLABMON_METRICS_CACHE_EXCLUDE", "--metrics.cache-exclude"),
    setting(Key::Root, "path", "root", "SLABMON_PATH_ROOT", "--path.root"),
    setting(Key::LogLevel, "log", "level", "SLABMON_LOG_LEVEL", "--log.level"),
    setting(Key::LogFormat, "log", "format", "SLABMON_LOG_FORMAT", "--log.format"),
    setting(Key::KeepCapabilities, "capabilities", "keep", "SLABMON_CAPABILITIES_KEEP", "--capabilities.keep"),
];

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nowhere: it is the default.
    Default,
    /// In the file, on that line (from 1).
    File {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// In that variable.
    Variable(&'static str),
    /// In that option.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => formatter.write_str("default"),
            Self::File { path, line } => write!(formatter, "{}:{line}", shown(path)),
            Self::Variable(name) | Self::Flag(name) => formatter.write_str(name),
        }
    }
}

/// Why there is no configuration; each message names the place and what to write there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: {problem}; name another file with {FILE_OPTION} or {FILE_VARIABLE}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why not.
        problem: String,
    },
    /// The file is not TOML.
    #[error("{path}:{line}: not valid TOML: {problem}")]
    Syntax {
        /// The file.
        path: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        problem: String,
    },
    /// The file has a key that slabmon does not know.
    #[error("{path}:{line}: unknown key `{key}`, {hint}")]
    UnknownKey {
        /// The file.
        path: String,
        /// The line, from 1.
        line: usize,
        /// The key, with its section.
        key: String,
        /// What may have been meant.
        hint: String,
    },
    /// The environment has a `SLABMON_` variable that slabmon does not know.
    #[error("{name}: unknown variable, {hint}")]
    UnknownVariable {
        /// The variable.
        name: String,
        /// What may have been meant.
        hint: String,
    },
    /// A value cannot be used.
    #[error("{place}: {problem}")]
    Value {
        /// Where it was written, and its key where the place does not say it.
        place: String,
        /// What is wrong and what to write instead.
        problem: String,
        /// Whether it was on the command line.
        on_command_line: bool,
    },
}

impl ConfigError {
    /// 64 for a mistake on the command line, else 78.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Value { on_command_line: true, .. } => EXIT_USAGE,
            _ => EXIT_CONFIG,
        }
    }
}

/// The effective configuration. Made by [`load`] alone, so that each value is within its bounds.
#[derive(Clone, Debug)]
pub struct Config {
    listen_addresses: Vec<ListenAddress>,
    telemetry_path: TelemetryPath,
    counters_interval: Duration,
    slabinfo_interval: Duration,
    trace_enabled: bool,
    slots_per_cpu: u32,
    btf: Option<PathBuf>,
    max_series: u32,
    cache_include: Vec<Regex>,
    cache_exclude: Vec<Regex>,
    root: PathBuf,
    log_level: LogLevel,
    log_format: LogFormat,
    keep_capabilities: bool,
    origins: [Origin; SETTINGS.len()],
}

impl Config {
    /// Addresses to serve on, at least one.
    pub fn listen_addresses(&self) -> &[ListenAddress] {
        &self.listen_addresses
    }

    /// Path of the metrics.
    pub fn telemetry_path(&self) -> &TelemetryPath {
        &self.telemetry_path
    }

    /// How often the counters are read.
    pub fn counters_interval(&self) -> Duration {
        self.counters_interval
    }

    /// How often slabinfo is read.
    pub fn slabinfo_interval(&self) -> Duration {
        self.slabinfo_interval
    }

    /// Whether allocations and frees are traced.
    pub fn trace_enabled(&self) -> bool {
        self.trace_enabled
    }

    /// Slots of the counter table that each CPU has: a power of two.
    pub fn slots_per_cpu(&self) -> u32 {
        self.slots_per_cpu
    }

    /// File that the kernel's types are read from; without, the kernel's own.
    pub fn btf(&self) -> Option<&Path> {
        self.btf.as_deref()
    }

    /// Most series of one exposition.
    pub fn max_series(&self) -> u32 {
        self.max_series
    }

    /// Caches in the metrics must match one of these; all do if there is none.
    pub fn cache_include(&self) -> &[Regex] {
        &self.cache_include
    }

    /// Caches that match one of these are not in the metrics.
    pub fn cache_exclude(&self) -> &[Regex] {
        &self.cache_exclude
    }

    /// Where the host's `proc` and `sys` are mounted.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What is logged.
    pub fn log_level(&self) -> LogLevel {
        self.log_level
    }

    /// How it is logged.
    pub fn log_format(&self) -> LogFormat {
        self.log_format
    }

    /// Whether the capabilities that are only needed at start are kept.
    pub fn keep_capabilities(&self) -> bool {
        self.keep_capabilities
    }

    /// The configuration as TOML that loads back to the same values; a comment tells where each one was written.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        let mut section = "";
        for (setting, origin) in SETTINGS.iter().zip(&self.origins) {
            if setting.section != section {
                let gap = if out.is_empty() { "" } else { "\n" };
                out.push_str(&format!("{gap}[{}]\n", setting.section));
                section = setting.section;
            }
            out.push_str(&format!("{} = {} # {origin}\n", setting.name, self.value(setting.key)));
        }
        out
    }

    fn value(&self, key: Key) -> toml::Value {
        let text = |text: &dyn fmt::Display| toml::Value::String(text.to_string());
        let patterns = |patterns: &[Regex]| toml::Value::Array(patterns.iter().map(|pattern| text(pattern)).collect());
        match key {
            Key::ListenAddress => {
                toml::Value::Array(self.listen_addresses.iter().map(|address| text(address)).collect())
            }
            Key::TelemetryPath => text(&self.telemetry_path.as_str()),
            Key::CountersInterval => text(&humantime::format_duration(self.counters_interval)),
            Key::SlabinfoInterval => text(&humantime::format_duration(self.slabinfo_interval)),
            Key::TraceEnabled => toml::Value::Boolean(self.trace_enabled),
            Key::SlotsPerCpu => toml::Value::Integer(self.slots_per_cpu.into()),
            Key::Btf => text(&self.btf.as_deref().unwrap_or(Path::new("")).display()),
            Key::MaxSeries => toml::Value::Integer(self.max_series.into()),
            Key::CacheInclude => patterns(&self.cache_include),
            Key::CacheExclude => patterns(&self.cache_exclude),
            Key::Root => text(&self.root.display()),
            Key::LogLevel => text(&self.log_level.as_str()),
            Key::LogFormat => text(&self.log_format.as_str()),
            Key::KeepCapabilities => toml::Value::Boolean(self.keep_capabilities),
        }
    }

    fn defaults() -> Self {
        Self {
            listen_addresses: vec![ListenAddress::Socket(SocketAddr::from(([127, 0, 0, 1], 9853)))],
            telemetry_path: TelemetryPath::default(),
            counters_interval: Duration::from_secs(1),
            slabinfo_interval: Duration::from_secs(10),
            trace_enabled: true,
            slots_per_cpu: 1024,
            btf: None,
            max_series: 2750,
            cache_include: vec![],
            cache_exclude: vec![],
            root: PathBuf::from("/"),
            log_level: LogLevel::Info,
            log_format: LogFormat::Text,
            keep_capabilities: false,
            origins: [const { Origin::Default }; SETTINGS.len()],
        }
    }

    /// Sets a value, if it is of the right type and within its bounds.
    fn set(&mut self, key: Key, given: &Given) -> Result<(), Problem> {
        match key {
            Key::ListenAddress => self.listen_addresses = listen_addresses(given)?,
            Key::TelemetryPath => self.telemetry_path = given.text("a path such as \"/metrics\"")?.parse()?,
            Key::CountersInterval => {
                self.counters_interval = given.duration(Duration::from_millis(100), Duration::from_secs(60))?;
            }
            Key::SlabinfoInterval => {
                self.slabinfo_interval = given.duration(Duration::from_secs(1), Duration::from_secs(3600))?;
            }
            Key::TraceEnabled => self.trace_enabled = given.boolean()?,
            Key::SlotsPerCpu => self.slots_per_cpu = power_of_two(given.integer(64, 65_536)?)?,
            Key::Btf => self.btf = optional_path(given.text("a path in quotes, or \"\" for the kernel's own")?)?,
            Key::MaxSeries => self.max_series = given.integer(100, 1_000_000)?,
            Key::CacheInclude => self.cache_include = patterns(given)?,
            Key::CacheExclude => self.cache_exclude = patterns(given)?,
            Key::Root => self.root = absolute_path(given.text("a path such as \"/\"")?)?,
            Key::LogLevel => self.log_level = given.text("a word such as \"info\"")?.parse()?,
            Key::LogFormat => self.log_format = given.text("a word such as \"text\"")?.parse()?,
            Key::KeepCapabilities => self.keep_capabilities = given.boolean()?,
        }
        Ok(())
    }

    fn apply(&mut self, setting: &Setting, given: &Given, origin: Origin) -> Result<(), ConfigError> {
        self.set(setting.key, given).map_err(|problem| value_error(setting, &origin, problem))?;
        if let Some(slot) = self.origins.get_mut(setting.key as usize) {
            *slot = origin;
        }
        Ok(())
    }
}

fn value_error(setting: &Setting, origin: &Origin, problem: Problem) -> ConfigError {
    let place = match origin {
        Origin::File { path, line } => {
            let line = problem.line.unwrap_or(*line);
            format!("{}:{line}: `{}.{}`", shown(path), setting.section, setting.name)
        }
        other => other.to_string(),
    };
    ConfigError::Value { place, problem: problem.text, on_command_line: matches!(origin, Origin::Flag(_)) }
}

/// What is wrong with a value, and on which line of the file if that is not the value's first.
struct Problem {
    text: String,
    line: Option<usize>,
}

impl From<String> for Problem {
    fn from(text: String) -> Self {
        Self { text, line: None }
    }
}

/// A value as written.
enum Given {
    /// In the environment or on the command line, where all is text.
    Words(Vec<String>),
    /// In the file.
    Text(String),
    Integer {
        digits: String,
        radix: u32,
    },
    Boolean(bool),
    /// Strings, each with its line.
    List(Vec<(String, usize)>),
    /// Of a type that no setting has.
    Other(&'static str),
}

impl Given {
    fn type_name(&self) -> &'static str {
        match self {
            Self::Words(_) | Self::Text(_) => "text",
            Self::Integer { .. } => "a number",
            Self::Boolean(_) => "true or false",
            Self::List(_) => "a list",
            Self::Other(name) => name,
        }
    }

    fn wrong_type(&self, expected: &str) -> String {
        format!("{} is not allowed here; write {expected}", self.type_name())
    }

    /// The one word, of which the last counts.
    fn word(&self) -> Option<&str> {
        match self {
            Self::Words(words) => words.last().map(String::as_str),
            _ => None,
        }
    }

    fn text(&self, expected: &str) -> Result<&str, String> {
        match self {
            Self::Text(text) => Ok(text),
            _ => self.word().ok_or_else(|| self.wrong_type(expected)),
        }
    }

    fn boolean(&self) -> Result<bool, String> {
        match (self, self.word()) {
            (Self::Boolean(value), _) => Ok(*value),
            (_, Some("true")) => Ok(true),
            (_, Some("false")) => Ok(false),
            (_, Some(word)) => Err(format!("`{}` is neither true nor false; write one of them", one_line(word))),
            (_, None) => Err(self.wrong_type("true or false")),
        }
    }

    fn integer(&self, least: u32, most: u32) -> Result<u32, String> {
        let (digits, radix) = match (self, self.word()) {
            (Self::Integer { digits, radix }, _) => (digits.as_str(), *radix),
            (_, Some(word)) => (word, 10),
            (_, None) => return Err(self.wrong_type(&format!("a number from {least} to {most}"))),
        };
        let value = i128::from_str_radix(digits, radix)
            .map_err(|_| format!("`{}` is no whole number; write one from {least} to {most}", one_line(digits)))?;
        u32::try_from(value)
            .ok()
            .filter(|value| (least..=most).contains(value))
            .ok_or_else(|| format!("{value} is out of bounds; write a number from {least} to {most}"))
    }

    fn duration(&self, least: Duration, most: Duration) -> Result<Duration, String> {
        let range = format!("{} to {}", humantime::format_duration(least), humantime::format_duration(most));
        let text = self.text(&format!("a duration in quotes, {range}, such as \"1s\""))?;
        let value = humantime::parse_duration(text)
            .map_err(|_| format!("`{}` is no duration; write number and unit, {range}, such as 1s", one_line(text)))?;
        if (least..=most).contains(&value) {
            Ok(value)
        } else {
            Err(format!("{} is out of bounds; write {range}", one_line(text)))
        }
    }

    /// The entries, each with its line in the file.
    fn list(&self, expected: &str) -> Result<Vec<(&str, Option<usize>)>, String> {
        let entries: Vec<(&str, Option<usize>)> = match self {
            Self::Words(words) => words.iter().map(|word| (word.as_str(), None)).collect(),
            Self::List(entries) => entries.iter().map(|(text, line)| (text.as_str(), Some(*line))).collect(),
            _ => return Err(self.wrong_type(&format!("a list of {expected}"))),
        };
        if entries.len() > MAX_LIST {
            return Err(format!("{} entries; at most {MAX_LIST} are allowed", entries.len()));
        }
        Ok(entries)
    }
}

fn listen_addresses(given: &Given) -> Result<Vec<ListenAddress>, Problem> {
    let mut addresses = Vec::new();
    for (text, line) in given.list("addresses such as [\"127.0.0.1:9853\"]")? {
        let address: ListenAddress = text.parse().map_err(|text| Problem { text, line })?;
        if addresses.contains(&address) {
            return Err(Problem { text: format!("`{address}` is given twice; write it once"), line });
        }
        addresses.push(address);
    }
    if addresses.is_empty() {
        return Err(Problem::from("no address at all; write at least one, such as 127.0.0.1:9853".to_owned()));
    }
    Ok(addresses)
}

fn patterns(given: &Given) -> Result<Vec<Regex>, Problem> {
    let entries = given.list("patterns such as [\"^kmalloc-\"]")?;
    let compile = |(text, line): (&str, Option<usize>)| {
        compile_pattern(text)
            .map_err(|error| Problem { text: format!("`{}` is {error}; correct the pattern", one_line(text)), line })
    };
    entries.into_iter().map(compile).collect()
}

fn power_of_two(value: u32) -> Result<u32, String> {
    if value.is_power_of_two() {
        return Ok(value);
    }
    let above = value.next_power_of_two();
    Err(format!("{value} is no power of two; write {} or {above}", above / 2))
}

fn absolute_path(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    if path.is_absolute() && !text.contains('\0') {
        Ok(path.to_owned())
    } else {
        Err(format!("`{}` is no absolute path; write one that begins with `/`", one_line(text)))
    }
}

/// `None` for an empty one.
fn optional_path(text: &str) -> Result<Option<PathBuf>, String> {
    match text {
        "" => Ok(None),
        text if text.contains('\0') => Err(format!("`{}` is no path; write one without NUL", one_line(text))),
        text => Ok(Some(PathBuf::from(text))),
    }
}

/// Loads the configuration: reads the file, and takes the environment as it is given.
pub fn load(cli: &Cli, environment: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Config, ConfigError> {
    load_with_default_file(cli, environment, Path::new(DEFAULT_FILE))
}

fn load_with_default_file(
    cli: &Cli,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    default_file: &Path,
) -> Result<Config, ConfigError> {
    let variables = own_variables(environment)?;
    let mut config = Config::defaults();

    let from_variable = variables.iter().find(|(name, _)| name == FILE_VARIABLE).map(|(_, value)| value.as_str());
    let named = cli.daemon.config_file.as_deref().or(from_variable);
    let path = named.map_or(default_file, Path::new);
    if let Some(text) = read_file(path, named.is_some())? {
        apply_file(&mut config, path, &text)?;
    }

    for setting in &SETTINGS {
        if let Some((_, value)) = variables.iter().find(|(name, _)| name == setting.variable) {
            let words = match setting.key {
                Key::ListenAddress => value.split(',').map(|word| word.trim().to_owned()).collect(),
                _ => vec![value.clone()],
            };
            config.apply(setting, &Given::Words(words), Origin::Variable(setting.variable))?;
        }
    }
    for setting in &SETTINGS {
        let words = words_of(&cli.daemon, setting.key);
        if !words.is_empty() {
            config.apply(setting, &Given::Words(words), Origin::Flag(setting.option))?;
        }
    }
    Ok(config)
}

fn words_of(arguments: &DaemonArgs, key: Key) -> Vec<String> {
    let one = |word: &Option<String>| word.iter().cloned().collect();
    match key {
        Key::ListenAddress => arguments.listen_address.clone(),
        Key::TelemetryPath => one(&arguments.telemetry_path),
        Key::CountersInterval => one(&arguments.counters_interval),
        Key::SlabinfoInterval => one(&arguments.slabinfo_interval),
        Key::TraceEnabled => one(&arguments.trace),
        Key::SlotsPerCpu => one(&arguments.slots_per_cpu),
        Key::Btf => one(&arguments.btf),
        Key::MaxSeries => one(&arguments.max_series),
        Key::CacheInclude => arguments.cache_include.clone(),
        Key::CacheExclude => arguments.cache_exclude.clone(),
        Key::Root => one(&arguments.root),
        Key::LogLevel => one(&arguments.log_level),
        Key::LogFormat => one(&arguments.log_format),
        Key::KeepCapabilities => one(&arguments.keep_capabilities),
    }
}

/// The `SLABMON_` variables that are not empty, all of them known.
fn own_variables(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Vec<(String, String)>, ConfigError> {
    let mut variables = Vec::new();
    for (name, value) in environment {
        let name = name.to_string_lossy().into_owned();
        if !name.starts_with(PREFIX) || is_not_for_us(&name) {
            continue;
        }
        let known = || SETTINGS.iter().map(|setting| setting.variable).chain([FILE_VARIABLE]);
        if !known().any(|variable| variable == name) {
            // Without the prefix, which is alike in all of them.
            let stems = known().filter_map(|variable| variable.strip_prefix(PREFIX));
            let hint = match nearest(&name[PREFIX.len()..], stems, 1).first() {
                Some(near) => format!("did you mean `{PREFIX}{near}`?"),
                None => "`slabmon --help` lists them all".to_owned(),
            };
            return Err(ConfigError::UnknownVariable { name: one_line(&name), hint });
        }
        let value = value.into_string().map_err(|_| ConfigError::Value {
            place: name.clone(),
            problem: "not UTF-8; write plain text".to_owned(),
            on_command_line: false,
        })?;
        if !value.is_empty() {
            variables.push((name, value));
        }
    }
    variables.sort();
    Ok(variables)
}

/// Variables that begin with our prefix but are set by others: the build, and Kubernetes, which gives every container
/// the addresses of all services (a service called `slabmon` becomes `SLABMON_SERVICE_HOST`, `SLABMON_PORT_9853_TCP`).
fn is_not_for_us(name: &str) -> bool {
    name == "SLABMON_REVISION"
        || name.starts_with("SLABMON_BUILD_")
        || name.contains("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || (name.contains("_PORT_") && ["_TCP", "_UDP", "_SCTP"].iter().any(|protocol| name.contains(protocol)))
}

/// The setting whose key is most like `name`, if any is.
fn like<'s>(name: &str, settings: impl Iterator<Item = &'s Setting> + Clone) -> Option<&'s Setting> {
    let near = nearest(name, settings.clone().map(|setting| setting.name), 1);
    let near = near.first()?;
    settings.into_iter().find(|setting| setting.name == *near)
}

fn shown(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { one_line(&path.display().to_string()) }
}

/// Keeps a message, or a comment, on its line.
fn one_line(text: &str) -> String {
    text.chars()
        .flat_map(|character| {
            let escaped = character.is_control();
            let plain = (!escaped).then_some(character);
            plain.into_iter().chain(escaped.then(|| character.escape_default()).into_iter().flatten())
        })
        .collect()
}

#[cfg(test)]
mod tests;
