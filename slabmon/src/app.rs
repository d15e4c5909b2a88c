//! The daemon and the other commands, step by step; reads like a table of contents.

mod account;

use std::{
    io::Write,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use tokio::{net::TcpListener, sync::watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    cli::{self, Cli, Command, TopArgs},
    config::{self, Config, ConfigError},
    exposition::Exposition,
    host::facts::HostFacts,
    http::{self, AppState},
    logging,
    metrics::{self, MetricsContext},
    model::{limits::LimitsError, snapshot::Snapshot},
    plan::{Obstacle, PlanOptions, ProbePlan},
    poll::{Intervals, Poller},
    privileges,
    probe::Probe,
    readers::Readers,
    report::{self, BUILD, Context, client::ClientError},
    saved::SavedError,
    service::{self, Watchdog},
    shutdown,
};

/// How long `slabmon top --once` counts before it prints, when it has to trace by itself.
const TOP_FIRST_INTERVAL: Duration = Duration::from_secs(1);
/// How long a running daemon may take to answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum AppError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("nothing can be served: {reasons}")]
    NothingToServe { reasons: String, obstacle: Obstacle },
    #[error(transparent)]
    Limits(#[from] LimitsError),
    #[error(transparent)]
    Privileges(#[from] privileges::DropError),
    #[error("cannot listen on {address}: {error}; choose another one with --web.listen-address")]
    Bind { address: String, error: std::io::Error },
    #[error("the poll thread ended by itself; what it said last is above")]
    PollThread,
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Saved(#[from] SavedError),
    #[error("{what}: {error}")]
    Io { what: &'static str, error: std::io::Error },
}

impl AppError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Config(error) => error.exit_code(),
            Self::Limits(_) => cli::EXIT_CONFIG,
            Self::NothingToServe { obstacle: Obstacle::Permission, .. } => cli::EXIT_NO_PERMISSION,
            Self::NothingToServe { .. } => cli::EXIT_UNAVAILABLE,
            Self::PollThread => cli::EXIT_SOFTWARE,
            Self::Privileges(_) | Self::Bind { .. } | Self::Client(_) | Self::Saved(_) | Self::Io { .. } => {
                cli::EXIT_FAILURE
            }
        }
    }
}

/// Runs what the command line asks for; the result is the exit code.
pub fn run(cli: &Cli) -> u8 {
    match dispatch(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("slabmon: {error}");
            error.exit_code()
        }
    }
}

fn dispatch(cli: &Cli) -> Result<u8, AppError> {
    let config = config::load(cli, std::env::vars_os())?;
    if cli.daemon.print_config {
        return print(&config.to_toml());
    }
    if cli.daemon.config_check {
        return print("the configuration is valid\n");
    }
    if let Err(error) = logging::start(config.log_level(), config.log_format()) {
        eprintln!("slabmon: logging was started before: {error}");
    }
    match &cli.command {
        None => serve(&config),
        Some(Command::Check) => check(&config),
        Some(Command::Top(arguments)) => top(&config, arguments),
        Some(Command::Report(arguments)) => account::report(&config, arguments),
        Some(Command::Diff(arguments)) => account::diff(arguments),
    }
}

/// Everything that is read, opened and attached.
struct Sources {
    plan: ProbePlan,
    facts: HostFacts,
    probe: Option<Probe>,
    readers: Readers,
}

impl Sources {
    /// Facts → plan → load → attach; and the files. Fails only if neither probes nor slabinfo are to be had.
    fn open(config: &Config) -> Result<Self, AppError> {
        let facts = HostFacts::read(config.root(), config.btf());
        let options = PlanOptions { trace: config.trace_enabled(), slots_per_cpu: config.slots_per_cpu() };
        let mut plan = ProbePlan::new(&facts, &options);
        let readers = Readers::open(config.root(), &facts, &mut plan);
        let probe = start_probe(&mut plan, &facts);
        if probe.is_none() && !readers.has_slabinfo() {
            return Err(nothing_to_serve(&plan));
        }
        Ok(Self { plan, facts, probe, readers })
    }

    fn into_poller(self, config: &Config, started: Instant) -> Poller {
        let intervals = Intervals { counters: config.counters_interval(), slabinfo: config.slabinfo_interval() };
        let host = self.facts.for_status();
        Poller::new(self.probe, self.readers, self.plan.features, host, intervals, started)
    }
}

fn start_probe(plan: &mut ProbePlan, facts: &HostFacts) -> Option<Probe> {
    if plan.programs.is_empty() {
        return None;
    }
    match Probe::start(plan, facts.possible_cpus) {
        Ok(probe) => Some(probe),
        Err(error) => {
            let obstacle = if error.is_permission() { Obstacle::Permission } else { Obstacle::Kernel };
            plan.tracing_failed(error.to_string(), error.remedy(), obstacle);
            None
        }
    }
}

fn nothing_to_serve(plan: &ProbePlan) -> AppError {
    let reasons: Vec<String> = ["tracing", "slabinfo"]
        .iter()
        .filter_map(|name| plan.feature(name))
        .map(|feature| format!("{}: {} ({})", feature.name, feature.reason, feature.remedy))
        .collect();
    AppError::NothingToServe { reasons: reasons.join("; "), obstacle: plan.obstacle() }
}

/// The daemon.
fn serve(config: &Config) -> Result<u8, AppError> {
    let started = Instant::now();
    let sources = Sources::open(config)?;
    log_features(&sources.plan);
    if !config.keep_capabilities() {
        let keep = sources.probe.as_ref().map(Probe::capabilities_needed).unwrap_or_default();
        privileges::drop_capabilities_except(&keep)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("slabmon-http")
        .enable_all()
        .build()
        .map_err(|error| AppError::Io { what: "the async runtime could not be started", error })?;
    runtime.block_on(async {
        let listeners = bind(config).await?;
        let (publisher, snapshots) = watch::channel(None);
        let (exposition, metrics_context) = Exposition::new(config)?;
        let shutdown = CancellationToken::new();
        let poller = sources.into_poller(config, started);
        let snapshot_interval = poller.snapshot_interval();
        let (poll_thread, stop_polling) = spawn_poll_thread(poller, exposition, publisher, shutdown.clone(), started)?;

        let state = AppState::new(
            snapshots,
            metrics_encoder(metrics_context),
            config.telemetry_path().clone(),
            snapshot_interval,
            started,
        );
        let servers = TaskTracker::new();
        for listener in listeners {
            servers.spawn(http::run(listener, state.clone(), shutdown.clone()));
        }
        servers.close();

        let asked = tokio::select! {
            signal = shutdown::requested() => {
                let signal = signal.map_err(|error| AppError::Io { what: "signals cannot be received", error })?;
                tracing::info!(signal, "stopping");
                true
            }
            () = shutdown.cancelled() => false,
        };
        service::notify_stopping();
        shutdown.cancel();
        servers.wait().await;
        drop(stop_polling);
        // The thread owns the probe: when it has ended, every program is detached.
        let ended = tokio::task::spawn_blocking(move || poll_thread.join()).await;
        match ended {
            Ok(Ok(())) if asked => Ok(cli::EXIT_OK),
            _ => Err(AppError::PollThread),
        }
    })
}

async fn bind(config: &Config) -> Result<Vec<TcpListener>, AppError> {
    let mut listeners = Vec::new();
    for address in config.listen_addresses() {
        let listener =
            http::bind(address).await.map_err(|error| AppError::Bind { address: address.to_string(), error })?;
        listeners.push(listener);
    }
    Ok(listeners)
}

/// Starts polling. The thread cancels `shutdown` when it ends for whatever reason, so that the daemon never serves what
/// nobody refreshes; it ends when the sender that comes back is dropped.
fn spawn_poll_thread(
    poller: Poller,
    mut exposition: Exposition,
    publisher: watch::Sender<Option<Arc<Snapshot>>>,
    shutdown: CancellationToken,
    started: Instant,
) -> Result<(thread::JoinHandle<()>, mpsc::Sender<()>), AppError> {
    let (stop, stopped) = mpsc::channel();
    let mut watchdog = Watchdog::from_environment();
    let thread = thread::Builder::new()
        .name("slabmon-poll".into())
        .spawn(move || {
            let _ended = shutdown.drop_guard();
            poller.run(&publisher, &stopped, |snapshot| {
                exposition.refresh(snapshot);
                if snapshot.sequence == 1 {
                    service::notify_ready();
                    let after_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
                    tracing::info!(caches = snapshot.caches.len(), after_ms, "ready");
                }
                watchdog.feed(Instant::now());
            });
        })
        .map_err(|error| AppError::Io { what: "the poll thread could not be started", error })?;
    Ok((thread, stop))
}

fn metrics_encoder(context: watch::Receiver<Arc<MetricsContext>>) -> http::EncodeMetrics {
    Arc::new(move |snapshot, accept| {
        let format = metrics::negotiate(accept);
        let context = Arc::clone(&context.borrow());
        metrics::encode(format, snapshot, &context).map(|body| (format.content_type(), body))
    })
}

fn log_features(plan: &ProbePlan) {
    for feature in &plan.features {
        if feature.enabled {
            tracing::info!(feature = feature.name, how = %feature.reason, "on");
        } else if feature.remedy.is_empty() {
            tracing::info!(feature = feature.name, why = %feature.reason, "off");
        } else {
            tracing::warn!(feature = feature.name, why = %feature.reason, remedy = %feature.remedy, "off");
        }
    }
}

/// `slabmon check`.
fn check(config: &Config) -> Result<u8, AppError> {
    let facts = HostFacts::read(config.root(), config.btf());
    let options = PlanOptions { trace: config.trace_enabled(), slots_per_cpu: config.slots_per_cpu() };
    let mut plan = ProbePlan::new(&facts, &options);
    Readers::open(config.root(), &facts, &mut plan);
    drop(start_probe(&mut plan, &facts));
    let (text, verdict) = report::check::check(&plan.findings());
    print(&text)?;
    Ok(cli::exit_code_of_check(verdict))
}

/// `slabmon top`: from the daemon that runs, else traced here.
fn top(config: &Config, arguments: &TopArgs) -> Result<u8, AppError> {
    let query = arguments.query();
    let mut local: Option<(Poller, Instant)> = None;
    loop {
        let text = match &mut local {
            Some((poller, _)) => render_top(&poller.poll(), arguments)?,
            None => match report::client::fetch_top(&arguments.url, &query, arguments.format, CLIENT_TIMEOUT) {
                Ok(text) => text,
                Err(error) if error.is_refused() => {
                    let started = Instant::now();
                    let mut poller = Sources::open(config)?.into_poller(config, started);
                    // Rates need two readings.
                    poller.poll();
                    thread::sleep(TOP_FIRST_INTERVAL);
                    let text = render_top(&poller.poll(), arguments)?;
                    local = Some((poller, started));
                    text
                }
                Err(error) => return Err(error.into()),
            },
        };
        print(&text)?;
        if arguments.once {
            return Ok(cli::EXIT_OK);
        }
        print("\n")?;
        thread::sleep(arguments.interval);
    }
}

fn render_top(snapshot: &Snapshot, arguments: &TopArgs) -> Result<String, AppError> {
    let context = Context { build: BUILD, age: Duration::ZERO };
    http::render_top(snapshot, &arguments.query(), arguments.format, &context)
        .map_err(|error| AppError::Io { what: "the table could not be written", error: std::io::Error::other(error) })
}

fn print(text: &str) -> Result<u8, AppError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(i32::from(cli::EXIT_OK)),
        Err(error) => Err(AppError::Io { what: "standard output", error }),
        Ok(()) => Ok(cli::EXIT_OK),
    }
}
