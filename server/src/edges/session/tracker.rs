//! Follows the frames in the bytes that a client sends, to know at each moment how much of a message is unfinished.

/// The longest header of a frame: two bytes, eight of length, four of the mask.
const HEADER_BYTES_MAX: usize = 14;
const FIN: u8 = 0x80;
const MASKED: u8 = 0x80;
const OPCODE: u8 = 0x0f;
/// The first opcode of control frames.
const CONTROL: u8 = 8;

/// The place in a stream of frames.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    header: [u8; HEADER_BYTES_MAX],
    read: usize,
    /// The bytes of the frame's payload that are still to come.
    left: u64,
    /// Whether the frame ends its message; control frames are of none.
    ends: bool,
    /// The declared bytes of the message whose end hasn't begun to arrive or is arriving.
    message: u64,
}

impl Tracker {
    /// Follows these bytes. Returns whether a message ended among them.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) -> bool {
        let mut ended = false;
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.left > 0 {
                let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                self.left -= taken as u64;
                bytes = &bytes[taken..];
                ended |= self.left == 0 && self.end();
                continue;
            }
            self.header[self.read] = byte;
            self.read += 1;
            bytes = rest;
            if self.read == self.header_bytes() {
                self.begin();
                ended |= self.left == 0 && self.end();
            }
        }
        ended
    }

    /// Returns whether a frame or a message has begun and not ended.
    pub(super) const fn is_within(&self) -> bool {
        self.read > 0 || self.left > 0 || self.message > 0
    }

    /// Returns the bytes that the unfinished message has by the lengths of its frames.
    pub(super) const fn message_bytes(&self) -> u64 {
        self.message
    }

    /// Returns the length of the header whose first bytes have been read.
    const fn header_bytes(&self) -> usize {
        if self.read < 2 {
            return 2;
        }
        let length = match self.header[1] & !MASKED {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        2 + length + if self.header[1] & MASKED == 0 { 0 } else { 4 }
    }

    fn begin(&mut self) {
        let length = match self.header[1] & !MASKED {
            126 => u64::from(u16::from_be_bytes([self.header[2], self.header[3]])),
            127 => self.header[2..10].iter().fold(0, |length, byte| length << 8 | u64::from(*byte)),
            short => u64::from(short),
        };
        (self.read, self.left) = (0, length);
        let control = self.header[0] & OPCODE >= CONTROL;
        self.ends = !control && self.header[0] & FIN != 0;
        if !control {
            // At least 1, so that a message of empty fragments counts as begun.
            self.message = self.message.saturating_add(length).max(1);
        }
    }

    /// Ends the frame. Returns whether its message ends with it.
    const fn end(&mut self) -> bool {
        if self.ends {
            self.message = 0;
        }
        self.ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(first: u8, payload: usize) -> Vec<u8> {
        let mut bytes = vec![first];
        match payload {
            0..126 => bytes.push(MASKED | u8::try_from(payload).unwrap()),
            126..65_536 => {
                bytes.push(MASKED | 126);
                bytes.extend(u16::try_from(payload).unwrap().to_be_bytes());
            }
            _ => {
                bytes.push(MASKED | 127);
                bytes.extend((payload as u64).to_be_bytes());
            }
        }
        bytes.extend([0; 4]);
        bytes.resize(bytes.len() + payload, b'x');
        bytes
    }

    #[test]
    fn a_message_is_unfinished_from_its_first_byte_to_its_last() {
        for payload in [0, 1, 125, 126, 65_535, 65_536] {
            let bytes = frame(FIN | 1, payload);
            let mut tracker = Tracker::default();
            for (at, byte) in bytes.iter().enumerate() {
                let ended = tracker.follow(&[*byte]);
                assert_eq!(ended, at + 1 == bytes.len(), "{payload}: byte {at}");
                assert_eq!(tracker.is_within(), at + 1 < bytes.len(), "{payload}: byte {at}");
            }
            let mut whole = Tracker::default();
            assert!(whole.follow(&[bytes.clone(), bytes].concat()) && !whole.is_within());
        }
    }

    #[test]
    fn fragments_add_up_and_control_frames_do_not_count() {
        let mut tracker = Tracker::default();
        tracker.follow(&frame(1, 300));
        assert_eq!((tracker.is_within(), tracker.message_bytes()), (true, 300));
        tracker.follow(&frame(FIN | 10, 3));
        assert_eq!((tracker.is_within(), tracker.message_bytes()), (true, 300));
        tracker.follow(&frame(0, 0));
        tracker.follow(&frame(0, 200)[..5]);
        assert_eq!(tracker.message_bytes(), 300, "its header isn't whole");
        let mut rest = frame(0, 200)[5..].to_vec();
        rest.extend(frame(FIN, 0));
        tracker.follow(&rest);
        assert_eq!((tracker.is_within(), tracker.message_bytes()), (false, 0));
    }

    #[test]
    fn a_declared_length_counts_before_it_arrives() {
        let mut tracker = Tracker::default();
        tracker.follow(&frame(FIN | 1, 100 << 20)[..14]);
        assert_eq!(tracker.message_bytes(), 100 << 20);
    }
}
