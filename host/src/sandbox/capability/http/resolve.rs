//! Names to addresses: looked up once, and all of the answer vetted.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use wasmtime_wasi_http::Error;

use super::refusal::{Refusal, Report};
use crate::policy::{NetGrant, is_prohibited};
use crate::tool::BoxFuture;

/// The longest that one lookup may take.
const LOOKUP: Duration = Duration::from_secs(5);

/// The most addresses of one name that are dialled.
const MAX_DIALLED: usize = 4;

/// The most lookups at once. One that hangs holds a thread, whatever becomes of the call.
const MAX_LOOKUPS: usize = 16;

/// Looks up host names.
pub(crate) trait Resolver: Send + Sync {
    /// All addresses of a name, in the order in which they should be tried.
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The resolver of the operating system.
pub(crate) struct SystemResolver {
    slots: Arc<Semaphore>,
}

impl SystemResolver {
    /// A resolver with its own bound on lookups at once.
    pub(crate) fn new() -> Self {
        Self { slots: Arc::new(Semaphore::new(MAX_LOOKUPS)) }
    }
}

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let host = host.to_owned();
        Box::pin(async move {
            let slot = Arc::clone(&self.slots).acquire_owned().await.map_err(io::Error::other)?;
            // `getaddrinfo` cannot be cancelled, so its slot is given back by its thread and not by this future.
            let lookup = move || {
                let _slot = slot;
                let addresses = (host.as_str(), 0).to_socket_addrs()?;
                Ok(addresses.map(|address| address.ip()).collect())
            };
            tokio::task::spawn_blocking(lookup).await.map_err(io::Error::other)?
        })
    }
}

/// The addresses of a host that may be dialled.
///
/// One lookup, and one prohibited address refuses all: a name with a public and a private address is an attack on whoever picks.
/// What is returned is dialled as it is, so a second answer of the name server changes nothing (DNS rebinding).
///
/// # Errors
///
/// Returns why there is none.
pub(super) async fn vetted(
    resolver: &dyn Resolver,
    host: &str,
    grant: &NetGrant,
    connect_by: Instant,
    report: &Report,
) -> Result<Vec<IpAddr>, Refusal> {
    let addresses = match host.parse::<IpAddr>() {
        Ok(address) => vec![address],
        Err(_) => {
            let by = connect_by.min(Instant::now() + LOOKUP);
            let answer = timeout_at(by, resolver.resolve(host)).await.map_err(|_| Error::DnsTimeout)?;
            answer.map_err(|_| Error::DnsError { rcode: Some("the name does not resolve".to_owned()), info_code: None })?
        }
    };
    let mut vetted: Vec<IpAddr> = Vec::new();
    for address in addresses {
        // An IPv4-mapped IPv6 address reaches the IPv4 address.
        let address = address.to_canonical();
        if let Some(kind) = is_prohibited(address)
            && !grant.allows_address(address)
        {
            return Err(report.prohibited(grant, host, address, kind));
        }
        if vetted.len() < MAX_DIALLED && !vetted.contains(&address) {
            vetted.push(address);
        }
    }
    if vetted.is_empty() {
        return Err(Error::DnsError { rcode: Some("the name has no address".to_owned()), info_code: None }.into());
    }
    Ok(vetted)
}
