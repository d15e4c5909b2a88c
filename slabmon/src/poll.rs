//! The poll thread: owns the probe and the readers, derives, and publishes one immutable snapshot after each reading.
//!
//! Everything that blocks happens here. A scrape reads what was published last and touches neither file nor map.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tokio::sync::watch;

use crate::{
    model::{
        derive::{Deriver, SnapshotInput},
        sample::CounterSample,
        snapshot::{CollectorState, Feature, HostFact, Snapshot},
    },
    probe::Probe,
    readers::Readers,
};

/// Once in this many checked lookups may contradict the kernel; above that the lookup is not used any more.
const TOLERATED_MISMATCH_RATIO: u64 = 10_000;

/// How often what is read.
#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    /// Counters.
    pub counters: Duration,
    /// slabinfo, meminfo and, for new caches, sysfs.
    pub slabinfo: Duration,
}

/// Everything that is polled.
pub struct Poller {
    /// `None`: nothing is traced.
    probe: Option<Probe>,
    readers: Readers,
    deriver: Deriver,
    features: Arc<[Feature]>,
    host: Arc<[HostFact]>,
    intervals: Intervals,
    started: Instant,
    slabinfo_due: Instant,
}

impl Poller {
    /// A poller that has read nothing yet. `started` is the origin of all times.
    pub fn new(
        probe: Option<Probe>,
        readers: Readers,
        features: Vec<Feature>,
        host: Vec<HostFact>,
        intervals: Intervals,
        started: Instant,
    ) -> Self {
        Self {
            probe,
            readers,
            deriver: Deriver::new(),
            features: features.into(),
            host: host.into(),
            intervals,
            started,
            slabinfo_due: started,
        }
    }

    /// How often a snapshot is published. Without probes only slabinfo changes, so its own interval will do.
    pub fn snapshot_interval(&self) -> Duration {
        if self.probe.is_some() { self.intervals.counters } else { self.intervals.slabinfo }
    }

    /// Polls until `stop` says so or its sender is gone. `progress` is called after each snapshot.
    pub fn run(
        mut self,
        publisher: &watch::Sender<Option<Arc<Snapshot>>>,
        stop: &Receiver<()>,
        mut progress: impl FnMut(&Snapshot),
    ) {
        let interval = self.snapshot_interval();
        let mut due = Instant::now();
        loop {
            let snapshot = Arc::new(self.poll());
            progress(&snapshot);
            publisher.send_replace(Some(snapshot));
            due += interval;
            let now = Instant::now();
            if due < now {
                // A reading took longer than the interval: skip what was missed rather than catch up.
                due = now;
            }
            match stop.recv_timeout(due.saturating_duration_since(now)) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Reads what is due and derives the snapshot of now.
    pub fn poll(&mut self) -> Snapshot {
        let now = Instant::now();
        let slabinfo_is_due = now >= self.slabinfo_due;
        if slabinfo_is_due {
            self.slabinfo_due = now + self.intervals.slabinfo;
        }
        // Counters before the listing and slabinfo: a cache that the counters know and slabinfo does not is gone.
        let (counters, counters_state) = self.drain_counters();
        if slabinfo_is_due {
            self.readers.read(self.started.elapsed(), unix_seconds());
            if let Some(probe) = &mut self.probe {
                probe.relist();
            }
        }
        let mut collectors = Vec::with_capacity(8);
        collectors.extend(counters_state);
        collectors.extend(self.readers.states().cloned());
        self.deriver.derive(SnapshotInput {
            taken_at_unix_seconds: unix_seconds(),
            uptime: self.started.elapsed(),
            page_size_bytes: self.readers.page_size_bytes(),
            counters,
            page_lookup: self.probe.as_ref().is_some_and(Probe::lookup_usable),
            slabinfo: self.readers.slabinfo().cloned(),
            meminfo: self.readers.meminfo(),
            attributes: self.readers.attributes(),
            features: Arc::clone(&self.features),
            collectors,
            host: Arc::clone(&self.host),
            machine: self.readers.machine(),
        })
    }

    fn drain_counters(&mut self) -> (Option<CounterSample>, Option<CollectorState>) {
        let Some(probe) = &mut self.probe else { return (None, None) };
        let began = Instant::now();
        let sample = probe.drain(self.started.elapsed());
        let state = CollectorState { collector: "counters", success: true, duration: began.elapsed(), error: None };
        self.watch_lookup(&sample);
        (Some(sample), Some(state))
    }

    /// A lookup that contradicts the kernel is taken out of use: wrong numbers are worse than none.
    fn watch_lookup(&mut self, sample: &CounterSample) {
        let proof = sample.proof;
        let Some(probe) = &mut self.probe else { return };
        if !probe.lookup_usable() || proof.mismatches.saturating_mul(TOLERATED_MISMATCH_RATIO) <= proof.checks {
            return;
        }
        let reason = format!("{} of {} checked lookups gave another cache", proof.mismatches, proof.checks);
        tracing::error!(%reason, "the page lookup is not used any more; kmalloc is counted by size class");
        if let Err(error) = probe.disable_lookup() {
            tracing::error!(%error, "the page lookup could not be switched off");
        }
        let mut features = self.features.to_vec();
        for feature in features.iter_mut().filter(|feature| feature.name == "page_lookup") {
            feature.enabled = false;
            feature.reason = reason.clone();
            feature.remedy = "report it with the kernel's version; a restart calibrates anew".into();
        }
        self.features = features.into();
    }
}

/// Wall-clock time now; 0 for a clock before 1970.
fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
