//! The loads by name, for use by hand and from scripts.

use std::path::Path;

use crate::{LoadError, churn, held, messages, net};

/// One load of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Workload {
    /// Pipes, held.
    Pipes,
    /// Connected unix stream sockets, held.
    Socketpairs,
    /// Eventfds, held.
    Eventfds,
    /// Timerfds that are not armed, held.
    Timerfds,
    /// Epoll instances that watch an eventfd each, held.
    Epolls,
    /// Open files without a name in --dir, held.
    Files,
    /// Messages of --size bytes in System V message queues, held.
    Messages,
    /// Anonymous mappings of --size bytes, held.
    Maps,
    /// Datagrams with --size bytes of control data.
    ControlData,
    /// Processes that run `true`.
    Exec,
    /// Names in --dir that are not there.
    Stat,
    /// Files in --dir, made and removed.
    OpenClose,
    /// Mappings of --size bytes, made and given back.
    MapUnmap,
    /// Timerfds, armed and closed.
    Timers,
    /// TCP connections over the loopback.
    Tcp,
    /// UDP datagrams over the loopback.
    Udp,
    /// Datagrams over a pair of unix sockets.
    UnixDatagrams,
    /// Reads of a sysctl into a buffer of --size bytes.
    Sysctl,
}

/// Whatever a load holds.
pub type Guard = Box<dyn std::any::Any>;

impl Workload {
    /// Bytes that `--size` means where it is not given.
    #[must_use]
    pub const fn default_size_bytes(self) -> usize {
        match self {
            Self::Messages => 1000,
            Self::ControlData => 12_000,
            Self::MapUnmap => 1 << 20,
            Self::Sysctl => 60_000,
            _ => 4096,
        }
    }

    /// Makes the load once: `count` objects that the guard holds, or `count` operations and an empty guard.
    ///
    /// # Errors
    /// What the load itself says.
    pub fn make(self, count: usize, size_bytes: usize, dir: &Path) -> Result<Guard, LoadError> {
        Ok(match self {
            Self::Pipes => Box::new(held::pipes(count)?),
            Self::Socketpairs => Box::new(held::socketpairs(count)?),
            Self::Eventfds => Box::new(held::eventfds(count)?),
            Self::Timerfds => Box::new(held::timerfds(count)?),
            Self::Epolls => Box::new(held::epolls(count)?),
            Self::Files => Box::new(held::files(dir, count)?),
            Self::Messages => Box::new(messages::messages(count, size_bytes)?),
            Self::Maps => Box::new(held::maps(count, size_bytes)?),
            Self::ControlData => Box::new(churn::control_data(count, size_bytes)?),
            Self::Exec => Box::new(churn::exec(count)?),
            Self::Stat => Box::new(churn::stat_absent_names(dir, count)?),
            Self::OpenClose => Box::new(churn::open_and_close(dir, count)?),
            Self::MapUnmap => Box::new(churn::map_and_unmap(count, size_bytes)?),
            Self::Timers => Box::new(churn::timers(count)?),
            Self::Tcp => Box::new(net::tcp_connections(count)?),
            Self::Udp => Box::new(net::udp_datagrams(count)?),
            Self::UnixDatagrams => Box::new(net::unix_datagrams(count)?),
            Self::Sysctl => Box::new(churn::read_sysctl(count, size_bytes)?),
        })
    }

    /// Whether the objects stay until the guard is dropped.
    #[must_use]
    pub const fn holds(self) -> bool {
        matches!(
            self,
            Self::Pipes
                | Self::Socketpairs
                | Self::Eventfds
                | Self::Timerfds
                | Self::Epolls
                | Self::Files
                | Self::Messages
                | Self::Maps
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_load_can_be_made_with_its_own_default_size() {
        let dir = tempfile::tempdir().unwrap();
        for workload in Workload::value_variants() {
            let guard = workload.make(3, workload.default_size_bytes(), dir.path()).unwrap();
            // A load that holds nothing hands back the unit.
            assert_eq!(guard.is::<()>(), !workload.holds(), "{workload:?}");
        }
    }
}
