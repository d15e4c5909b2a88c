//! The kinds of values that settings take.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use super::{OWN_PATHS, one_line};

/// An address to serve on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// `:9853`, all addresses of the host.
    AllAddresses {
        /// The port; 0 lets the kernel choose.
        port: u16,
    },
    /// One address.
    Socket(SocketAddr),
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllAddresses { port } => write!(formatter, ":{port}"),
            Self::Socket(address) => write!(formatter, "{address}"),
        }
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(port) = text.strip_prefix(':')
            && let Ok(port) = port.parse()
        {
            return Ok(Self::AllAddresses { port });
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Socket(address));
        }
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        let problem = match bare.parse::<IpAddr>() {
            Ok(IpAddr::V4(address)) => format!("has no port; write {address}:9853"),
            Ok(IpAddr::V6(address)) => format!("has no port; write [{address}]:9853"),
            Err(_) => {
                "is no address and port (names are not looked up); write 127.0.0.1:9853, [::1]:9853 or :9853".into()
            }
        };
        Err(format!("`{}` {problem}", one_line(text)))
    }
}

/// The path of the metrics: plain characters, and none of the paths that the API has for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TelemetryPath(String);

impl TelemetryPath {
    /// The path, with its leading `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for TelemetryPath {
    fn default() -> Self {
        Self("/metrics".to_owned())
    }
}

impl FromStr for TelemetryPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        let Some(rest) = text.strip_prefix('/') else {
            return Err(format!("`{}` does not begin with `/`; write a path such as /metrics", one_line(text)));
        };
        if OWN_PATHS.contains(&text) || text.starts_with("/caches/") {
            return Err(format!("`{text}` is taken by slabmon's API; write another path, such as /metrics"));
        }
        let wrong = |segment: &str| matches!(segment, "" | "." | "..") || !segment.bytes().all(plain);
        if text.len() > 255 || rest.split('/').any(wrong) {
            return Err(format!(
                "`{}` is not a plain path; write letters, digits, `-`, `.`, `_` and `~` between single slashes",
                one_line(text)
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_meta])* $variant),+ }

        impl $name {
            /// All words.
            pub const NAMES: &'static [&'static str] = &[$($word),+];

            /// The word that users write.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(format!("`{}` is not known; write one of {}", one_line(word), Self::NAMES.join(", "))),
                }
            }
        }
    };
}

words! {
    /// What is logged.
    LogLevel {
        /// What stops a part of slabmon.
        Error = "error",
        /// What an operator should look at.
        Warn = "warn",
        /// Start, stop and changes.
        Info = "info",
        /// What a developer wants to know.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

words! {
    /// How it is logged.
    LogFormat {
        /// For people.
        Text = "text",
        /// `key=value` pairs.
        Logfmt = "logfmt",
        /// One JSON object a line.
        Json = "json",
    }
}
