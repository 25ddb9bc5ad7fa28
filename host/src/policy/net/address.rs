//! Addresses that plugins may not reach, and ranges that a policy opens again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cidr {
    /// The first address.
    pub address: IpAddr,
    /// How many leading bits are fixed.
    pub prefix: u8,
}

impl Cidr {
    /// Parses `10.0.0.0/8`, `fd00::/8`, or a single address.
    ///
    /// An IPv4-mapped range (`::ffff:10.0.0.0/104`) becomes the IPv4 range that it is.
    ///
    /// # Errors
    ///
    /// Returns what is wrong. A range whose address has bits beyond its prefix is refused: the author meant something else.
    pub fn parse(text: &str) -> Result<Self, String> {
        let shown = crate::text::clean_line(text, 60);
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| format!("`{shown}` is not an address range"))?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => width,
            Some(digits) if digits.len() > 3 || !digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                return Err(format!("`{shown}` has no valid prefix length"));
            }
            Some(digits) => digits.parse::<u8>().map_err(|_| format!("`{shown}` has no valid prefix length"))?,
        };
        if prefix > width {
            return Err(format!("`{shown}` has a prefix of more than {width} bits"));
        }
        let (address, prefix) = match address {
            IpAddr::V6(v6) if prefix >= 96 => match v6.to_ipv4_mapped() {
                Some(v4) => (IpAddr::V4(v4), prefix - 96),
                None => (address, prefix),
            },
            _ => (address, prefix),
        };
        let range = Self { address, prefix };
        if range.first() != address {
            return Err(format!("`{shown}` has bits set beyond its prefix; the range is `{}/{prefix}`", range.first()));
        }
        Ok(range)
    }

    /// Whether the range contains the address. An IPv4-mapped IPv6 address is the IPv4 address that it reaches.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(range), IpAddr::V4(address)) => mask_v4(address, self.prefix) == mask_v4(range, self.prefix),
            (IpAddr::V6(range), IpAddr::V6(address)) => mask_v6(address, self.prefix) == mask_v6(range, self.prefix),
            _ => false,
        }
    }

    fn first(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => IpAddr::V4(mask_v4(address, self.prefix)),
            IpAddr::V6(address) => IpAddr::V6(mask_v6(address, self.prefix)),
        }
    }

    pub(crate) fn last(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let host_bits = u32::MAX.checked_shr(u32::from(self.prefix)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() | host_bits))
            }
            IpAddr::V6(address) => {
                let host_bits = u128::MAX.checked_shr(u32::from(self.prefix)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() | host_bits))
            }
        }
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

fn mask_v4(address: Ipv4Addr, prefix: u8) -> Ipv4Addr {
    Ipv4Addr::from_bits(address.to_bits() & u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0))
}

fn mask_v6(address: Ipv6Addr, prefix: u8) -> Ipv6Addr {
    Ipv6Addr::from_bits(address.to_bits() & u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0))
}

/// What kind of address this is, if plugins may not reach it unless a rule's `private` opens it.
///
/// From the IANA special-purpose registries (RFC 6890 and its updates), multicast, the metadata services of clouds, and every IPv6
/// form that carries an IPv4 address: such a form is judged as what it carries, or refused as a whole where it is a tunnel.
pub fn is_prohibited(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => prohibited_v4(address),
        IpAddr::V6(address) => prohibited_v6(address),
    }
}

fn prohibited_v4(address: Ipv4Addr) -> Option<&'static str> {
    // 192.0.0.192 is Oracle's and 168.63.129.16 Azure's; 169.254.169.254 and 100.100.100.200 lie in ranges below but deserve the name.
    const METADATA: [[u8; 4]; 5] =
        [[169, 254, 169, 254], [169, 254, 170, 2], [100, 100, 100, 200], [192, 0, 0, 192], [168, 63, 129, 16]];
    let octets = address.octets();
    if METADATA.contains(&octets) {
        return Some("a cloud metadata service");
    }
    Some(match octets {
        [0, ..] => "an address of this network",
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => "a private address",
        [100, 64..=127, ..] => "a carrier-grade NAT address",
        [127, ..] => "a loopback address",
        [169, 254, ..] => "a link-local address",
        [192, 0, 0, _] => "a protocol assignment",
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => "a documentation address",
        [192, 31, 196, _] | [192, 52, 193, _] | [192, 175, 48, _] => "a special-purpose address",
        [192, 88, 99, _] => "a 6to4 relay",
        [198, 18..=19, ..] => "a benchmarking address",
        [224..=239, ..] => "a multicast address",
        [240..=255, ..] => "a reserved address",
        _ => return None,
    })
}

fn prohibited_v6(address: Ipv6Addr) -> Option<&'static str> {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        Ipv4Addr::new(a, b, c, d)
    };
    Some(match segments {
        [0, 0, 0, 0, 0, 0, 0, 0] => "an address of this network",
        [0, 0, 0, 0, 0, 0, 0, 1] => "a loopback address",
        // IPv4-mapped (RFC 4291 section 2.5.5.2): the system dials the IPv4 address.
        [0, 0, 0, 0, 0, 0xffff, high, low] => return prohibited_v4(embedded(high, low)),
        [0, 0, 0, 0, 0, 0, _, _] => "an IPv4-compatible address",
        [0, 0, 0, 0, 0xffff, 0, _, _] => "an IPv4-translated address",
        // NAT64 (RFC 6052): on an IPv6-only network this is how every IPv4 host is reached, so what it carries decides.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => return prohibited_v4(embedded(high, low)),
        [0x64, 0xff9b, 1, ..] => "a local NAT64 address",
        [0x100, 0, 0, 0 | 1, ..] => "a discard address",
        [0x2001, 0, ..] => "a Teredo address",
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => "a documentation address",
        [0x2001, 0..=0x1ff, ..] => "a protocol assignment",
        [0x2002, ..] => "a 6to4 address",
        [0x5f00, ..] => "a segment routing address",
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => "a cloud metadata service",
        [0xfc00..=0xfdff, ..] => "a private address",
        [0xfe80..=0xfebf, ..] => "a link-local address",
        [0xfec0..=0xfeff, ..] => "a site-local address",
        [0xff00..=0xffff, ..] => "a multicast address",
        // ISATAP (RFC 5214 section 6.1): an IPv4 address in the interface identifier.
        [0x2000..=0x3fff, _, _, _, 0 | 0x200, 0x5efe, high, low] => return prohibited_v4(embedded(high, low)),
        // Global unicast is 2000::/3; everything else is unassigned.
        [0x2000..=0x3fff, ..] => return None,
        _ => "a reserved address",
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn refuses_every_address_that_is_not_public() {
        for (text, expected) in [
            ("0.0.0.0", "an address of this network"),
            ("10.255.255.255", "a private address"),
            ("100.64.0.0", "a carrier-grade NAT address"),
            ("100.127.255.255", "a carrier-grade NAT address"),
            ("127.0.0.1", "a loopback address"),
            ("127.255.255.255", "a loopback address"),
            ("169.254.1.1", "a link-local address"),
            ("172.16.0.0", "a private address"),
            ("172.31.255.255", "a private address"),
            ("192.0.0.1", "a protocol assignment"),
            ("192.0.2.1", "a documentation address"),
            ("192.88.99.1", "a 6to4 relay"),
            ("192.168.0.1", "a private address"),
            ("198.18.0.1", "a benchmarking address"),
            ("198.19.255.255", "a benchmarking address"),
            ("198.51.100.1", "a documentation address"),
            ("203.0.113.9", "a documentation address"),
            ("224.0.0.1", "a multicast address"),
            ("239.255.255.255", "a multicast address"),
            ("240.0.0.1", "a reserved address"),
            ("255.255.255.255", "a reserved address"),
            ("169.254.169.254", "a cloud metadata service"),
            ("169.254.170.2", "a cloud metadata service"),
            ("100.100.100.200", "a cloud metadata service"),
            ("192.0.0.192", "a cloud metadata service"),
            ("168.63.129.16", "a cloud metadata service"),
            ("::", "an address of this network"),
            ("::1", "a loopback address"),
            ("::127.0.0.1", "an IPv4-compatible address"),
            ("::8.8.8.8", "an IPv4-compatible address"),
            ("::ffff:127.0.0.1", "a loopback address"),
            ("::ffff:10.0.0.1", "a private address"),
            ("::ffff:169.254.169.254", "a cloud metadata service"),
            ("::ffff:0:127.0.0.1", "an IPv4-translated address"),
            ("64:ff9b::7f00:1", "a loopback address"),
            ("64:ff9b::a9fe:a9fe", "a cloud metadata service"),
            ("64:ff9b:1::a00:1", "a local NAT64 address"),
            ("100::1", "a discard address"),
            ("2001::1", "a Teredo address"),
            ("2001:2::1", "a protocol assignment"),
            ("2001:20::1", "a protocol assignment"),
            ("2001:db8::1", "a documentation address"),
            ("3fff:fff::1", "a documentation address"),
            ("2002:7f00:1::", "a 6to4 address"),
            ("2002:808:808::", "a 6to4 address"),
            ("5f00::1", "a segment routing address"),
            ("fc00::1", "a private address"),
            ("fdff::1", "a private address"),
            ("fd00:ec2::254", "a cloud metadata service"),
            ("fd20:ce::254", "a cloud metadata service"),
            ("fe80::1", "a link-local address"),
            ("febf::1", "a link-local address"),
            ("fec0::1", "a site-local address"),
            ("ff02::1", "a multicast address"),
            ("2600::5efe:a00:1", "a private address"),
            ("4000::1", "a reserved address"),
        ] {
            assert_eq!(is_prohibited(text.parse().expect(text)), Some(expected), "{text}");
        }
    }

    #[test]
    fn lets_public_addresses_through() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2606:4700:4700::1111",
            "2a00::1",
        ] {
            assert_eq!(is_prohibited(text.parse().expect(text)), None, "{text}");
        }
    }

    #[test]
    fn reads_ranges() {
        for (text, address, prefix) in [
            ("127.0.0.1/32", "127.0.0.1", 32),
            ("127.0.0.1", "127.0.0.1", 32),
            ("10.0.0.0/8", "10.0.0.0", 8),
            ("0.0.0.0/0", "0.0.0.0", 0),
            ("fd00::/8", "fd00::", 8),
            ("::1", "::1", 128),
            ("::/0", "::", 0),
            ("::ffff:10.0.0.0/104", "10.0.0.0", 8),
        ] {
            assert_eq!(Cidr::parse(text), Ok(Cidr { address: address.parse().expect(text), prefix }), "{text}");
        }
        for text in ["", "/8", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0.0/-1", "::/129", "10.0.0/8", "10.0.0.0/8/8"] {
            assert!(Cidr::parse(text).is_err(), "{text}");
        }
        let error = Cidr::parse("10.1.2.3/8").expect_err("host bits");
        assert_eq!(error, "`10.1.2.3/8` has bits set beyond its prefix; the range is `10.0.0.0/8`");
    }

    #[test]
    fn a_mapped_address_is_in_the_range_of_its_ipv4() {
        let range = Cidr::parse("10.0.0.0/8").expect("valid");
        assert!(range.contains("::ffff:10.1.2.3".parse().expect("valid")));
        assert!(!range.contains("::10.1.2.3".parse().expect("valid")));
        assert!(!range.contains("64:ff9b::a01:203".parse().expect("valid")));
        assert!(!Cidr::parse("::/0").expect("valid").contains("10.0.0.1".parse().expect("valid")));
    }

    proptest! {
        #[test]
        fn ranges_contain_what_their_bits_say(address: u32, prefix in 0u8..=32, other: u32) {
            let host_bits = (1u64 << (32 - prefix)) - 1;
            let first = u64::from(address) & !host_bits;
            let text = format!("{}/{prefix}", Ipv4Addr::from_bits(first as u32));
            let range = Cidr::parse(&text).expect("a range");
            let inside = (first..=first + host_bits).contains(&u64::from(other));
            prop_assert_eq!(range.contains(IpAddr::V4(Ipv4Addr::from_bits(other))), inside);
            prop_assert_eq!(range.last(), IpAddr::V4(Ipv4Addr::from_bits((first + host_bits) as u32)));
        }

        #[test]
        fn a_mapped_address_is_judged_as_its_ipv4(address: u32) {
            let v4 = Ipv4Addr::from_bits(address);
            prop_assert_eq!(is_prohibited(IpAddr::V6(v4.to_ipv6_mapped())), is_prohibited(IpAddr::V4(v4)));
        }

        #[test]
        fn any_address_is_judged(address: u128, text: String) {
            let _ = is_prohibited(IpAddr::V6(Ipv6Addr::from_bits(address)));
            let _ = Cidr::parse(&text);
        }
    }
}
