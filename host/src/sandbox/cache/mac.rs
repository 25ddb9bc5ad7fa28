//! HMAC-SHA256 (RFC 2104): proof that bytes were written by someone who has the key.

use sha2::{Digest, Sha256};

/// SHA-256 works on blocks of this many bytes.
const BLOCK: usize = 64;

/// A message that is being authenticated.
#[derive(Clone)]
pub(super) struct Hmac {
    inner: Sha256,
    outer: Sha256,
}

impl Hmac {
    /// Starts a message.
    pub(super) fn new(key: &[u8]) -> Self {
        let mut block = [0; BLOCK];
        if key.len() > BLOCK {
            block[..32].copy_from_slice(&Sha256::digest(key));
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        Self {
            inner: Sha256::new_with_prefix(block.map(|byte| byte ^ 0x36)),
            outer: Sha256::new_with_prefix(block.map(|byte| byte ^ 0x5c)),
        }
    }

    /// Adds bytes to the message.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.inner.update(bytes);
    }

    /// Ends the message; returns its tag.
    pub(super) fn finish(mut self) -> [u8; 32] {
        self.outer.update(self.inner.finalize());
        self.outer.finalize().into()
    }

    /// Ends the message; compares its tag in a time that does not depend on where they differ.
    pub(super) fn verify(self, tag: &[u8; 32]) -> bool {
        self.finish().iter().zip(tag).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::hex;

    #[test]
    fn gives_the_tags_of_rfc_4231() {
        for (key, message, expected) in [
            (vec![0x0b; 20], b"Hi There".to_vec(), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (
                b"Jefe".to_vec(),
                b"what do ya want for nothing?".to_vec(),
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (vec![0xaa; 20], vec![0xdd; 50], "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"),
            (
                vec![0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First".to_vec(),
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ] {
            let mut hmac = Hmac::new(&key);
            for piece in message.chunks(7) {
                hmac.update(piece);
            }
            assert_eq!(hex(&hmac.clone().finish()), expected);
            let mut tag = hmac.clone().finish();
            assert!(hmac.clone().verify(&tag));
            tag[31] ^= 1;
            assert!(!hmac.verify(&tag));
        }
    }
}
