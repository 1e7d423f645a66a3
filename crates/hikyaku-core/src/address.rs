//! Which addresses a webhook may lead to (S1, S2, S6, S7): a pure judgement of one address, so that the network code
//! has nothing to decide.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use url::{Host, Url};

/// Why a target is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Plain http without the setting for it (S6).
    #[error("plain http is not allowed; use https, or set sender.targets.allow_http = true")]
    Http,
    /// Not a public address (S1).
    #[error("{address} is {range}, not a public address; add its range to sender.targets.allow if it is meant")]
    NotPublic {
        /// The address, unwrapped.
        address: IpAddr,
        /// What kind of address it is.
        range: &'static str,
    },
    /// A cloud's metadata service (S7).
    #[error("{0} is a cloud metadata address, which is never delivered to")]
    Metadata(IpAddr),
    /// A port other than 80 and 443 (S6).
    #[error("port {0} is not allowed for a public address; only 443 and 80 are")]
    Port(u16),
    /// The URL has no host.
    #[error("the URL has no host")]
    NoHost,
}

/// What may be delivered to beyond public addresses over https.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TargetPolicy {
    /// Ranges that may be delivered to although they are not public; any port of theirs may be.
    pub allow: Vec<IpNet>,
    /// Whether plain http may be.
    pub allow_http: bool,
}

/// Ports of a public address that may be delivered to (S6).
const PUBLIC_PORTS: [u16; 2] = [443, 80];

impl TargetPolicy {
    /// For targets that the operator has named: nothing is out of bounds but what S7 refuses to everybody.
    pub fn everywhere() -> Self {
        Self { allow: vec![IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())], allow_http: true }
    }

    /// Judges what a URL alone shows: the scheme, and the host where it is an address. A name is judged when it has
    /// been resolved, on every attempt anew (S4).
    pub fn vet_url(&self, url: &Url) -> Result<(), Refusal> {
        if url.scheme() == "http" && !self.allow_http {
            return Err(Refusal::Http);
        }
        let port = url.port_or_known_default().unwrap_or(443);
        match url.host().ok_or(Refusal::NoHost)? {
            Host::Domain(_) => Ok(()),
            Host::Ipv4(address) => self.vet_address(address.into(), port),
            Host::Ipv6(address) => self.vet_address(address.into(), port),
        }
    }

    /// Judges one resolved address (S1, S2, S6, S7).
    pub fn vet_address(&self, address: IpAddr, port: u16) -> Result<(), Refusal> {
        let address = unwrap_carrier(address);
        if is_metadata(address) {
            return Err(Refusal::Metadata(address));
        }
        if self.allow.iter().any(|range| range.contains(&address)) {
            return Ok(());
        }
        if let Some(range) = not_public(address) {
            return Err(Refusal::NotPublic { address, range });
        }
        if !PUBLIC_PORTS.contains(&port) {
            return Err(Refusal::Port(port));
        }
        Ok(())
    }
}

/// The IPv4 address inside an IPv6 one, for the two forms that really lead there: mapped, and NAT64's well-known
/// prefix. The others that carry IPv4 stay as they are and are refused as such (S2).
fn unwrap_carrier(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    if let Some(v4) = v6.to_ipv4_mapped() {
        return v4.into();
    }
    match v6.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4_of(high, low).into(),
        _ => address,
    }
}

fn v4_of(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))
}

/// Whether it is a cloud's metadata service; some of them are on addresses that are otherwise public (S7).
pub fn is_metadata(address: IpAddr) -> bool {
    const V4: [Ipv4Addr; 5] = [
        Ipv4Addr::new(169, 254, 169, 254), // AWS, Google, Azure, DigitalOcean, Oracle and others
        Ipv4Addr::new(169, 254, 170, 2),   // AWS ECS credentials
        Ipv4Addr::new(100, 100, 100, 200), // Alibaba
        Ipv4Addr::new(192, 0, 0, 192),     // Oracle
        Ipv4Addr::new(168, 63, 129, 16),   // Azure's host
    ];
    const V6: [Ipv6Addr; 3] = [
        Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), // AWS
        Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),  // AWS EKS pod identity
        Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),  // Google
    ];
    match address {
        IpAddr::V4(v4) => V4.contains(&v4),
        IpAddr::V6(v6) => V6.contains(&v6),
    }
}

/// What kind of non-public address it is, or `None` for a public one.
fn not_public(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => not_public_v4(v4),
        IpAddr::V6(v6) => not_public_v6(v6),
    }
}

/// IANA's special-purpose registry for IPv4.
fn not_public_v4(address: Ipv4Addr) -> Option<&'static str> {
    Some(match address.octets() {
        [0, ..] => "unspecified (0.0.0.0/8)",
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => "private",
        [100, 64..=127, ..] => "carrier-grade NAT (100.64.0.0/10)",
        [127, ..] => "loopback",
        [169, 254, ..] => "link-local",
        [192, 0, 0, _] => "reserved (192.0.0.0/24)",
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => "for documentation",
        [192, 88, 99, _] => "a 6to4 relay",
        [198, 18..=19, ..] => "for benchmarking",
        [224..=239, ..] => "multicast",
        [240..=255, ..] => "reserved or broadcast",
        _ => return None,
    })
}

/// Everything outside 2000::/3 is not public; inside it, the registry's exceptions and the carriers of IPv4 (S2).
fn not_public_v6(address: Ipv6Addr) -> Option<&'static str> {
    let s = address.segments();
    Some(match s {
        [0, 0, 0, 0, 0, 0, 0, 0] => "unspecified",
        [0, 0, 0, 0, 0, 0, 0, 1] => "loopback",
        [0, 0, 0, 0, 0, 0, _, _] => "an IPv4-compatible address",
        [0, 0, 0, 0, 0xffff, 0, _, _] => "an IPv4-translated address (SIIT)",
        [0x64, 0xff9b, 1, ..] => "local NAT64",
        [0x100, 0, 0, ..] => "a discard address",
        [0xfc00..=0xfdff, ..] => "unique local (private)",
        [0xfe80..=0xfebf, ..] => "link-local",
        [0xfec0..=0xfeff, ..] => "site-local",
        [0xff00..=0xffff, ..] => "multicast",
        [.., 0 | 0x200, 0x5efe, _, _] => "an ISATAP address that carries IPv4",
        [0x2001, 0, ..] => "a Teredo address that carries IPv4",
        [0x2001, 0x1..=0x1ff, ..] => "reserved (2001::/23)",
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => "for documentation",
        [0x2002, ..] => "a 6to4 address that carries IPv4",
        [0x5f00, ..] => "for segment routing",
        [0x2000..=0x3fff, ..] => return None,
        _ => "not global unicast",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vet(policy: &TargetPolicy, url: &str) -> Result<(), Refusal> {
        policy.vet_url(&Url::parse(url).unwrap())
    }

    /// Hosts that are not public.
    const REFUSED: [&str; 51] = [
        // loopback in every spelling that a URL parser takes
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "0x7f.1",
        "127.0.0.1.",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[::ffff:0:127.0.0.1]",
        "１２７.０.０.１",
        // the rest of the registry
        "0.0.0.0",
        "0",
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.0.1",
        "192.0.0.8",
        "192.0.2.1",
        "198.51.100.1",
        "203.0.113.1",
        "192.88.99.1",
        "198.18.0.1",
        "198.19.255.255",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "[::]",
        "[fc00::1]",
        "[fdff::1]",
        "[fe80::1]",
        "[fec0::1]",
        "[ff02::1]",
        "[2001:db8::1]",
        "[3fff::1]",
        "[2001::1]",
        "[2001:2::1]",
        "[2002:7f00:1::]",
        "[100::1]",
        "[64:ff9b:1::1]",
        "[5f00::1]",
        "[4000::1]",
        "[2606:4700::5efe:7f00:1]",
        "[2606:4700::200:5efe:7f00:1]",
        "[64:ff9b::a9fe:1]",
    ];

    #[test]
    fn s1_s2_s3_nothing_but_public_addresses_however_they_are_spelled() {
        let policy = TargetPolicy::default();
        for host in REFUSED {
            assert!(vet(&policy, &format!("https://{host}/")).is_err(), "{host}");
        }
        for host in [
            "8.8.8.8",
            "172.32.0.1",
            "100.128.0.1",
            "198.20.0.1",
            "[2606:4700::1]",
            "[64:ff9b::808:808]",
            "example.com",
        ] {
            assert_eq!(vet(&policy, &format!("https://{host}/")), Ok(()), "{host}");
        }
    }

    #[test]
    fn s1_a_refusal_says_what_kind_of_address_it_is() {
        for (address, kind) in [
            ("0.0.0.0", "unspecified (0.0.0.0/8)"),
            ("10.0.0.1", "private"),
            ("192.168.1.1", "private"),
            ("100.64.0.1", "carrier-grade NAT"),
            ("127.0.0.1", "loopback"),
            ("169.254.0.1", "link-local"),
            ("192.0.0.8", "reserved (192.0.0.0/24)"),
            ("203.0.113.1", "for documentation"),
            ("192.88.99.1", "a 6to4 relay"),
            ("198.18.0.1", "for benchmarking"),
            ("224.0.0.1", "multicast"),
            ("255.255.255.255", "reserved or broadcast"),
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("100::1", "a discard address"),
            ("fc00::1", "unique local"),
            ("fe80::1", "link-local"),
            ("fec0::1", "site-local"),
            ("ff02::1", "multicast"),
            ("2001:2::1", "reserved (2001::/23)"),
            ("2001:db8::1", "for documentation"),
            ("5f00::1", "for segment routing"),
            ("4000::1", "not global unicast"),
        ] {
            let refused = TargetPolicy::default().vet_address(address.parse().unwrap(), 443).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("{address} is {kind}")), "{refused}");
        }
    }

    #[test]
    fn s2_what_carries_an_ipv4_address_is_unwrapped_or_refused() {
        let private: TargetPolicy = TargetPolicy { allow: vec!["10.0.0.0/8".parse().unwrap()], allow_http: false };
        // The two that lead to the address inside are judged by it.
        for (public, inside) in [("::ffff:8.8.8.8", "::ffff:10.0.0.1"), ("64:ff9b::8.8.8.8", "64:ff9b::10.0.0.1")] {
            let vet = |policy: &TargetPolicy, host: &str| vet(policy, &format!("https://[{host}]/"));
            assert_eq!(vet(&TargetPolicy::default(), public), Ok(()), "{public}");
            let refused = vet(&TargetPolicy::default(), inside).unwrap_err().to_string();
            assert!(refused.starts_with("10.0.0.1 is private"), "{refused}");
            assert_eq!(vet(&private, inside), Ok(()), "{inside} is in the range that was allowed");
        }
        // The others are refused, whatever is inside.
        for (carrier, name) in [
            ("[::8.8.8.8]", "IPv4-compatible"),
            ("[::ffff:0:8.8.8.8]", "SIIT"),
            ("[2606:4700::5efe:8.8.8.8]", "ISATAP"),
            ("[2606:4700::200:5efe:8.8.8.8]", "ISATAP"),
            ("[2002:808:808::1]", "6to4"),
            ("[2001:0:808:808:8000:63bf:3fff:fdd2]", "Teredo"),
            ("[64:ff9b:1::8.8.8.8]", "local NAT64"),
        ] {
            let refused = vet(&private, &format!("https://{carrier}/")).unwrap_err().to_string();
            assert!(refused.contains(name), "{carrier}: {refused}");
        }
    }

    #[test]
    fn s3_the_host_that_is_judged_is_the_parsers() {
        for text in [
            "https://8.8.8.8:443@127.0.0.1/",
            "https://8.8.8.8%40@127.0.0.1/",
            "https://127.0.0.1\\@8.8.8.8/",
            "https://127.0.0.1/@8.8.8.8",
            "https://127.0.0.1?@8.8.8.8",
            "https://127.0.0.1#@8.8.8.8",
            "https:127.0.0.1",
            "https:///127.0.0.1/",
            "https://127%2e0%2e0%2e1/",
            "https://127。0。0。1/",
            "https://①②⑦.0.0.1/",
            "https://127.0.\n0.\t1/",
            "https://[::FFFF:127.0.0.1]:443/",
        ] {
            assert!(vet(&TargetPolicy::default(), text).is_err(), "{text}");
        }
        for text in ["https://8.8.8.8/@127.0.0.1", "https://8.8.8.8?x=[::1]", "https://127.0.0.1.example.com/"] {
            assert_eq!(vet(&TargetPolicy::default(), text), Ok(()), "{text}");
        }
        for text in
            ["https://[::1%25eth0]/", "https://[127.0.0.1]/", "https://[::1/", "https://1::1/", "https://256.1.1.1/"]
        {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn s7_metadata_is_refused_even_where_everything_is_allowed() {
        let all = TargetPolicy {
            allow: ["0.0.0.0/0", "::/0"].iter().map(|r| r.parse().unwrap()).collect(),
            allow_http: true,
        };
        for host in [
            "169.254.169.254",
            "[::ffff:169.254.169.254]",
            "[64:ff9b::a9fe:a9fe]",
            "2852039166",
            "100.100.100.200",
            "168.63.129.16",
            "[fd00:ec2::254]",
        ] {
            assert!(matches!(vet(&all, &format!("http://{host}/")), Err(Refusal::Metadata(_))), "{host}");
        }
        assert_eq!(vet(&all, "http://127.0.0.1:9000/"), Ok(()));
    }

    #[test]
    fn s6_https_on_443_or_80_unless_allowed() {
        let strict = TargetPolicy::default();
        assert_eq!(vet(&strict, "http://8.8.8.8/"), Err(Refusal::Http));
        assert_eq!(vet(&strict, "https://8.8.8.8:8443/"), Err(Refusal::Port(8443)));
        assert_eq!(vet(&strict, "https://8.8.8.8:80/"), Ok(()));
        let loopback = TargetPolicy { allow: vec!["127.0.0.0/8".parse().unwrap()], allow_http: true };
        assert_eq!(vet(&loopback, "http://127.0.0.1:9000/"), Ok(()));
        assert_eq!(vet(&loopback, "http://[::ffff:127.0.0.1]:9000/"), Ok(()));
        assert!(vet(&loopback, "http://10.0.0.1/").is_err());
    }
}
