//! The addresses that a webhook may reach. The name is resolved once, all of its addresses are checked, and the
//! connection goes to an address that was checked.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Resolves host names to addresses.
pub(super) trait Resolve {
    /// Returns all addresses of a name.
    fn resolve(&self, host: &str, port: u16) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send;
}

/// The resolver of the operating system.
pub(super) struct System;

impl Resolve for System {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, port)).await?.collect())
    }
}

/// Returns the addresses of a host that may be called. One forbidden address is enough to refuse the host.
pub(super) async fn addresses(
    host: &str,
    port: u16,
    allow_private: bool,
    resolver: &impl Resolve,
) -> Result<Vec<SocketAddr>, String> {
    let found = match literal(host) {
        Some(ip) => vec![SocketAddr::new(ip, port)],
        None => resolver.resolve(host, port).await.map_err(|error| format!("{host} can't be resolved: {error}"))?,
    };
    if found.is_empty() {
        return Err(format!("{host} has no address"));
    }
    // A hostile name may resolve to a public and to a private address.
    for address in &found {
        check(address.ip(), allow_private).map_err(|why| format!("{host}: {why}"))?;
    }
    Ok(found)
}

/// Returns the IP address that a URL's host is; `None` for a name. The URL parser has already normalized forms such as
/// `0x7f.1`.
pub(super) fn literal(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// What allows a receiver in one's own network, for whoever has the configuration.
pub(super) const OWN_RECEIVER: &str = "for your own receiver set allow_private = true";

/// Refuses an address that webhooks may not call; the text says why.
pub(super) fn check(ip: IpAddr, allow_private: bool) -> Result<(), String> {
    match reach(ip) {
        Reach::Public => Ok(()),
        Reach::Private(_) if allow_private => Ok(()),
        Reach::Private(what) => Err(format!("{ip} is {what}, which webhooks may not reach; {OWN_RECEIVER}")),
        Reach::Never(what) => Err(format!("{ip} is {what}, which webhooks never reach")),
    }
}

/// What an address leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// A host on the internet.
    Public,
    /// This machine or its network.
    Private(&'static str),
    /// An address without a legitimate receiver of notifications.
    Never(&'static str),
}

const METADATA: Reach = Reach::Never("a metadata service");
/// Metadata services of clouds, which hand out credentials and aren't link-local.
const METADATA_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(192, 0, 0, 192)];
const METADATA_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)];

fn reach(ip: IpAddr) -> Reach {
    match ip {
        IpAddr::V4(ip) => reach_v4(ip),
        IpAddr::V6(ip) => reach_v6(ip),
    }
}

fn reach_v4(ip: Ipv4Addr) -> Reach {
    if METADATA_V4.contains(&ip) {
        return METADATA;
    }
    match ip.octets() {
        [0, ..] => Reach::Never("unspecified"),
        [127, ..] => Reach::Private("loopback"),
        [10, ..] | [192, 168, ..] | [172, 16..=31, ..] => Reach::Private("private"),
        [100, 64..=127, ..] => Reach::Private("of a carrier's own network"),
        // Includes 169.254.169.254, the metadata service of most clouds.
        [169, 254, ..] => Reach::Never("link-local"),
        [192, 0, 0 | 2, _] | [198, 18 | 19, ..] | [198, 51, 100, _] | [203, 0, 113, _] | [192, 88, 99, _] => {
            Reach::Never("reserved")
        }
        [224..=239, ..] => Reach::Never("multicast"),
        [240..=255, ..] => Reach::Never("reserved"),
        _ => Reach::Public,
    }
}

fn reach_v6(ip: Ipv6Addr) -> Reach {
    if METADATA_V6.contains(&ip) {
        return METADATA;
    }
    let [.., c, d] = ip.segments();
    let [[a, b], [c, d]] = [c.to_be_bytes(), d.to_be_bytes()];
    let within = Ipv4Addr::new(a, b, c, d);
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Reach::Never("unspecified"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Reach::Private("loopback"),
        // IPv4-mapped, and NAT64's well-known prefix: the embedded IPv4 address is the one that is reached.
        [0, 0, 0, 0, 0, 0xffff, _, _] | [0x64, 0xff9b, 0, 0, 0, 0, _, _] => reach_v4(within),
        [0, ..] => Reach::Never("an old form of an IPv4 address"),
        // 6to4 and Teredo embed an IPv4 address too, which could be a private one.
        [0x2002, ..] | [0x2001, 0, ..] => Reach::Never("a tunnel to an IPv4 address"),
        [0x2001, 0xdb8, ..] => Reach::Never("reserved"),
        [0x2000..=0x3fff, ..] => Reach::Public,
        [0xfc00..=0xfdff, ..] => Reach::Private("private"),
        [0xfe80..=0xfebf, ..] => Reach::Never("link-local"),
        [0xff00..=0xffff, ..] => Reach::Never("multicast"),
        _ => Reach::Never("reserved"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str) -> IpAddr {
        let url = reqwest::Url::parse(url).unwrap();
        literal(url.host_str().unwrap()).unwrap_or_else(|| panic!("{url}"))
    }

    #[test]
    fn addresses_of_this_machine_and_its_network_are_denied_in_every_spelling() {
        for host in [
            "127.0.0.1",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "0x7f.1",
            "2130706433",
            "017700000001",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.0.1",
            "100.64.0.1",
            "[fc00::1]",
            "[fd12::1]",
            "[::ffff:10.0.0.1]",
            "[64:ff9b::7f00:1]",
        ] {
            let ip = of(&format!("https://{host}/"));
            assert!(check(ip, false).unwrap_err().contains("allow_private"), "{host}");
            assert_eq!(check(ip, true), Ok(()), "{host}");
        }
    }

    #[test]
    fn metadata_link_local_and_what_is_nobodys_is_denied_whatever_is_allowed() {
        for host in [
            "169.254.169.254",
            "[::ffff:169.254.169.254]",
            "[64:ff9b::a9fe:a9fe]",
            "[2002:a9fe:a9fe::1]",
            "[2002:7f00:1::]",
            "[::127.0.0.1]",
            "[::169.254.169.254]",
            "0.0.0.0",
            "0.1.2.3",
            "[::]",
            "[fe80::1]",
            "[fec0::1]",
            "[ff02::1]",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "[fd00:ec2::254]",
            "[64:ff9b:1::a00:1]",
            "[2001:db8::1]",
            "[2001:0:1::1]",
            "192.0.2.1",
            "198.18.0.1",
        ] {
            let ip = of(&format!("https://{host}/"));
            assert!(check(ip, true).unwrap_err().contains("never"), "{host}");
        }
    }

    #[test]
    fn what_is_out_there_is_reached() {
        for host in ["93.184.215.14", "[2606:2800:21f:cb07::1]", "[64:ff9b::5db8:d70e]", "[::ffff:93.184.215.14]"] {
            assert_eq!(check(of(&format!("https://{host}/")), false), Ok(()), "{host}");
        }
    }

    struct Fixed(&'static [&'static str]);

    impl Resolve for Fixed {
        async fn resolve(&self, _host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
            Ok(self.0.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), port)).collect())
        }
    }

    #[tokio::test]
    async fn a_name_is_as_good_as_the_worst_of_its_addresses() {
        let find = async |answer| addresses("hooks.example", 443, false, &Fixed(answer)).await;
        assert_eq!(find(&["93.184.215.14"]).await.unwrap(), ["93.184.215.14:443".parse().unwrap()]);
        for answer in [
            &["127.0.0.1"][..],
            &["::ffff:127.0.0.1"],
            &["169.254.169.254"],
            &["10.0.0.1"],
            &["fe80::1"],
            &["fc00::1"],
            &["0.0.0.0"],
            &["93.184.215.14", "192.168.0.1"],
            &[],
        ] {
            let refused = find(answer).await.unwrap_err();
            assert!(refused.contains("hooks.example"), "{answer:?}: {refused}");
        }
        assert!(addresses("localhost", 443, false, &System).await.unwrap_err().contains("loopback"));
    }
}
