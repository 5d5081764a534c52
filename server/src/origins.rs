//! Protects against requests from other sites in a browser: an allow-list of hosts against DNS rebinding, and requests
//! from the same origin only.

use std::net::IpAddr;

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};

use crate::tls::Transport;

/// The host names under which the server may be called. Literal addresses and `localhost` are always allowed, because
/// DNS can't rebind them.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    hosts: Vec<String>,
    transport: Transport,
}

impl Origins {
    /// Allows these host names in addition.
    #[must_use]
    pub(crate) fn new(hosts: &[String], transport: Transport) -> Self {
        Self { hosts: hosts.iter().map(|host| host.to_ascii_lowercase()).collect(), transport }
    }

    /// Returns the first of the additional host names.
    pub(crate) fn first_host(&self) -> Option<&str> {
        self.hosts.first().map(String::as_str)
    }

    /// Returns whether browsers should from now on reach the host of this request over TLS alone: a name that was
    /// configured, with a certificate that was given. On another name, such as `localhost`, that would lock out other
    /// programs.
    pub fn is_strict(&self, headers: &HeaderMap) -> bool {
        let Ok(Some(host)) = only(headers, &HOST) else { return false };
        let name = without_port(host).to_ascii_lowercase();
        self.transport == Transport::Certified && self.hosts.contains(&name) && name != "localhost"
    }

    /// Returns whether the host of this request is certainly this server: a name that was configured, or this machine.
    pub fn is_named(&self, headers: &HeaderMap) -> bool {
        let Ok(Some(host)) = only(headers, &HOST) else { return false };
        let name = without_port(host).to_ascii_lowercase();
        let literal = name.trim_start_matches('[').trim_end_matches(']');
        literal.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()) || name == "localhost" || self.hosts.contains(&name)
    }

    /// Admits a request with these headers, or returns why not.
    pub(crate) fn admits(&self, headers: &HeaderMap) -> Result<(), String> {
        let host = only(headers, &HOST)?.ok_or("there is no Host header")?;
        let name = without_port(host);
        if name.is_empty() {
            return Err("the Host header is empty".to_owned());
        }
        if !self.knows(host) {
            return Err(format!(
                "the Host header names {name:?}, which this server isn't called: start it with `lastword serve --host {name}`"
            ));
        }
        // Only browsers send an Origin; a program has none to check.
        match only(headers, &ORIGIN)? {
            None => Ok(()),
            Some(origin) if self.same_host(origin, host) => Ok(()),
            Some(_) => Err("the Origin header names another site".to_owned()),
        }
    }

    fn same_host(&self, origin: &str, host: &str) -> bool {
        let plain = match self.transport {
            // A proxy in front of it may speak TLS.
            Transport::Plain => origin.strip_prefix("http://"),
            // A page from the same host without TLS could be another's.
            Transport::SelfSigned | Transport::Certified => None,
        };
        let rest = plain.or_else(|| origin.strip_prefix("https://"));
        rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
    }

    fn knows(&self, host: &str) -> bool {
        let name = without_port(host).to_ascii_lowercase();
        let literal = name.trim_start_matches('[').trim_end_matches(']');
        literal.parse::<IpAddr>().is_ok()
            || name == "localhost"
            || name.ends_with(".localhost")
            || self.hosts.contains(&name)
    }
}

fn without_port(host: &str) -> &str {
    match host.rfind(':') {
        Some(colon) if !host[colon..].contains(']') => &host[..colon],
        Some(_) | None => host,
    }
}

fn only<'a>(headers: &'a HeaderMap, name: &axum::http::HeaderName) -> Result<Option<&'a str>, &'static str> {
    // A header sent twice could mean one thing to a proxy and another to this check.
    let mut values = headers.get_all(name).iter();
    let first = values.next().map(|value| value.to_str().map_err(|_| "a header is not ASCII")).transpose()?;
    if values.next().is_some() { Err("a header stands twice") } else { Ok(first) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(axum::http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        map
    }

    #[test]
    fn foreign_hosts_and_origins_are_refused() {
        let origins = Origins::new(&["broker.example".to_owned()], Transport::Plain);
        for good in [
            &[("host", "127.0.0.1:7171")][..],
            &[("host", "[::1]:7171")],
            &[("host", "localhost")],
            &[("host", "Broker.example:80")],
            &[("host", "localhost:1"), ("origin", "http://localhost:1")],
        ] {
            assert_eq!(origins.admits(&headers(good)), Ok(()), "{good:?}");
        }
        for bad in [
            &[][..],
            &[("host", "evil.example")],
            &[("host", "localhost.evil.example")],
            &[("host", "localhost:1"), ("origin", "null")],
            &[("host", "localhost:1"), ("origin", "http://localhost:2")],
            &[("host", "localhost:1"), ("origin", "http://localhost:1"), ("origin", "http://evil")],
            &[("host", "localhost"), ("host", "evil.example")],
        ] {
            assert!(origins.admits(&headers(bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn over_tls_a_page_without_it_is_another_site() {
        for transport in [Transport::SelfSigned, Transport::Certified] {
            let origins = Origins::new(&[], transport);
            let from = |origin| origins.admits(&headers(&[("host", "localhost:1"), ("origin", origin)]));
            assert_eq!(from("https://localhost:1"), Ok(()));
            assert!(from("http://localhost:1").is_err());
        }
    }

    #[test]
    fn only_a_configured_name_with_a_given_certificate_is_bound_to_tls() {
        let strict = |transport, host| {
            Origins::new(&["broker.example".to_owned()], transport).is_strict(&headers(&[("host", host)]))
        };
        assert!(strict(Transport::Certified, "broker.example:7171"));
        assert!(!strict(Transport::Certified, "localhost:7171") && !strict(Transport::Certified, "127.0.0.1:7171"));
        assert!(!strict(Transport::SelfSigned, "broker.example") && !strict(Transport::Plain, "broker.example"));
    }
}
