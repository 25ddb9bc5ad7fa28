//! The engine's version, and what is known against it.

/// The version of wasmtime that is compiled in.
pub const ENGINE_VERSION: &str = "48.0.8";

/// The first release without any advisory of [`KNOWN`].
const FIXED: [u32; 3] = [48, 0, 10];

/// A published fault of the engine.
#[derive(Clone, Copy, Debug)]
pub struct Advisory {
    /// Its identifier.
    pub id: &'static str,
    /// What it lets a guest do.
    pub what: &'static str,
    /// What this host does about it.
    pub mitigation: &'static str,
}

/// Advisories that 48.0.8 has, from wasmtime's release notes for 48.0.9 and 48.0.10.
const KNOWN: &[Advisory] = &[
    Advisory {
        id: "GHSA-5m8g",
        what: "empty writes to standard output pile up in the host",
        mitigation: "not reachable: guests write to a bounded pipe of this host's own",
    },
    Advisory {
        id: "GHSA-f8mm",
        what: "empty frames of an HTTP/2 body cost nothing and pile up",
        mitigation: "not reachable: plugins' requests are HTTP/1.1 only",
    },
    Advisory {
        id: "GHSA-rc4p-x33f-vpr2",
        what: "a guest aborts a host that was built without garbage collection",
        mitigation: "not reachable: it is built in, and switched off for guests",
    },
    Advisory {
        id: "GHSA-2674-w29h-wqvj",
        what: "a guest aborts a host that was built without threads",
        mitigation: "not reachable: they are built in, and switched off for guests",
    },
    Advisory {
        id: "GHSA-f2pq-268w-886c",
        what: "a drive-prefixed path leaves a mounted directory on Windows",
        mitigation: "do not mount directories on Windows",
    },
];

/// The advisories that the compiled-in version has; none from the release that mends them all.
pub fn advisories() -> &'static [Advisory] {
    let mut numbers = ENGINE_VERSION.split('.').map(|part| part.parse().unwrap_or(0));
    let version: [u32; 3] = std::array::from_fn(|_| numbers.next().unwrap_or(0));
    if version < FIXED { KNOWN } else { &[] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_one_whose_advisories_are_known() {
        assert!(ENGINE_VERSION.starts_with("48."), "review KNOWN and FIXED for wasmtime {ENGINE_VERSION}");
    }
}
