//! Entry points for a fuzzer: each takes any bytes, must not panic, and checks what must hold whatever the bytes are.

use std::path::PathBuf;
use std::sync::Arc;

use super::net::{NetTarget, canonical_host, normalise_path};
use super::requests::Requests;
use super::{Policy, PolicySource};

/// Reads the bytes as a policy. What parses also decides, and parses to the same digest again.
pub fn fuzz_policy(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let source = PolicySource { name: Arc::from("fuzz.toml"), text, base_dir: PathBuf::from("/fuzz/policy") };
    match Policy::parse(std::slice::from_ref(&source)) {
        Ok(policy) => {
            for plugin in policy.plugins() {
                for tool in ["", "get_x", "北京"] {
                    let decision = policy.decide(&plugin.id, tool, &serde_json::Map::new());
                    assert!(!decision.reason.is_empty(), "a decision has a reason");
                }
            }
            assert!(policy.plugin("not-in-the-policy").is_none() || text.contains("not-in-the-policy"));
        }
        Err(errors) => {
            assert!(!errors.errors.is_empty(), "a refusal says why");
            assert!(errors.errors.iter().all(|error| error.rule.line > 0 && !error.hint.is_empty()), "{errors}");
        }
    }
}

/// Reads the bytes as a plugin's requests.
pub fn fuzz_requests(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(requests) = Requests::parse(text) {
        let (grants, _) = super::grant::Grants::default().within(&requests);
        assert!(grants.net.is_empty() && grants.fs.is_empty() && grants.kv.is_none(), "a request grants nothing");
    }
}

/// Reads the bytes as a URL, a host and a path. What is canonical stays as it is.
pub fn fuzz_url(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(target) = NetTarget::from_url(text) {
        assert_eq!(NetTarget::from_url(&target.to_string()).as_ref(), Ok(&target), "canonical is canonical again");
    }
    if let Ok(path) = normalise_path(text) {
        assert_eq!(normalise_path(&path).as_ref(), Ok(&path), "normal is normal again");
    }
    let _ = canonical_host(text);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SEEDS: [&str; 10] = [
        "",
        "version = 1",
        "version = 1\r\n[limits]\r\nfuel = 1_000\r\n",
        "\u{feff}version = 1",
        "version = 1\n[plugins.a]\n[[plugins.a.tools]]\nname = \"get_*\"\ndecision = \"allow\"\nargs = { required = [\"x\"] }",
        "version = 1\n[[plugins.a.net]]\nhost = \"*.example.com\"\nprivate = [\"10.0.0.0/8\"]",
        "version = 1\n[[net]]\nhost = \"*\"\n[[config]]\nkey = \"k\"\n[[net]]\nconfig = \"k\"",
        "https://user@[::ffff:127.0.0.1]:8443/a/%2e%2e//b?q#f",
        "http://0x7f.1./..;/%252e",
        "\0[[[[[[",
    ];

    #[test]
    fn seeds() {
        for seed in SEEDS {
            fuzz_policy(seed.as_bytes());
            fuzz_requests(seed.as_bytes());
            fuzz_url(seed.as_bytes());
        }
        fuzz_policy(&[0xff, 0xfe]);
        fuzz_policy("[".repeat(200_000).as_bytes());
        fuzz_policy(format!("version = 1\nx = {}", "[".repeat(200_000)).as_bytes());
        fuzz_policy(format!("version = 1\nx = {}1", "{a=".repeat(200_000)).as_bytes());
        fuzz_policy(format!("[{}a]", "a.".repeat(100_000)).as_bytes());
    }

    proptest! {
        /// Seeds with a piece cut out and another put in.
        #[test]
        fn mutated_seeds(first in 0..SEEDS.len(), second in 0..SEEDS.len(), cut: prop::sample::Index, from: prop::sample::Index, junk: String) {
            let (first, second) = (SEEDS[first], SEEDS[second]);
            let head = &first[..first.floor_char_boundary(cut.index(first.len() + 1))];
            let tail = &second[second.floor_char_boundary(from.index(second.len() + 1))..];
            for text in [format!("{head}{tail}"), format!("{head}{junk}{tail}")] {
                fuzz_policy(text.as_bytes());
                fuzz_requests(text.as_bytes());
                fuzz_url(text.as_bytes());
            }
        }
    }
}
