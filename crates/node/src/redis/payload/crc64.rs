//! The checksum of payloads: CRC-64 with the polynomial of Jones, lowest bit first, as Redis computes it.

/// The polynomial `ad93d23594c935a9`, lowest bit first.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

/// How many bytes are taken at once.
const STRIDE: usize = 8;

/// What a byte adds that stands so many places before the end of its stride.
static TABLES: [[u64; 256]; STRIDE] = tables();

const fn tables() -> [[u64; 256]; STRIDE] {
    let mut tables = [[0; 256]; STRIDE];
    let mut byte = 0;
    while byte < 256 {
        let (mut sum, mut bit) = (byte as u64, 0);
        while bit < 8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut place = 1;
    while place < STRIDE {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[place - 1][byte];
            tables[place][byte] = tables[0][(before & 0xff) as usize] ^ before >> 8;
            byte += 1;
        }
        place += 1;
    }
    tables
}

/// The checksum of these bytes.
pub(super) fn of(bytes: &[u8]) -> u64 {
    let (strides, rest) = bytes.as_chunks::<STRIDE>();
    let sum = strides.iter().fold(0, |sum, stride| {
        let mixed = (sum ^ u64::from_le_bytes(*stride)).to_le_bytes();
        let parts = mixed.iter().zip(TABLES.iter().rev());
        parts.fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)])
    });
    rest.iter().fold(sum, |sum, byte| TABLES[0][usize::from(sum as u8 ^ byte)] ^ sum >> 8)
}

#[cfg(test)]
mod tests {
    /// Redis' own test vector; and bit by bit, over whole strides with any rest.
    #[test]
    fn it_is_the_checksum_of_redis() {
        assert_eq!(super::of(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        let text = b"This is a test of the emergency broadcast system.";
        for cut in 0..text.len() {
            let slow = text[..cut].iter().fold(0_u64, |sum, byte| {
                (0..8).fold(sum ^ u64::from(*byte), |sum, _| {
                    if sum & 1 == 1 { sum >> 1 ^ super::POLYNOMIAL } else { sum >> 1 }
                })
            });
            assert_eq!(super::of(&text[..cut]), slow, "{cut}");
        }
    }
}
