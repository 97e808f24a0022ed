//! The headers of a column's pages, looked through before the library acts on them. They are structures of Thrift's compact
//! protocol, of which only the sizes are taken.

use super::super::believed::{Packing, damaged, room};
use parquet::basic::{Compression, Type};
use parquet::file::metadata::ColumnChunkMetaData;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

/// Whether all pages of a column chunk can be what they say, in a file of this length. What is no header ends the look: the
/// library says what is wrong with it, if it comes so far.
pub(super) fn check(file: &File, length: u64, chunk: &ColumnChunkMetaData) -> io::Result<()> {
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    let (Ok(start), Ok(mut left)) = (u64::try_from(start), u64::try_from(chunk.compressed_size())) else {
        return Err(damaged("a column begins or is long below 0"));
    };
    if start.checked_add(left).is_none_or(|end| end > length) {
        return Err(damaged(&format!("a column of {left} bytes at {start} is beyond the end")));
    }
    let packing = match chunk.compression() {
        Compression::SNAPPY => Packing::Snappy,
        Compression::GZIP(_) => Packing::Gzip,
        Compression::LZ4 | Compression::LZ4_RAW => Packing::Lz4,
        Compression::ZSTD(_) => Packing::Zstd,
        _ => Packing::Other,
    };
    let width = match chunk.column_type() {
        Type::INT64 | Type::DOUBLE => 8,
        Type::INT32 | Type::FLOAT => 4,
        // These have no dictionary, or are not read.
        _ => 0,
    };
    let mut from = BufReader::with_capacity(1 << 10, file.try_clone()?);
    from.seek(SeekFrom::Start(start))?;
    while left > 0 {
        let mut header = Header { from: (&mut from).take(left), page: Page::default() };
        if header.structure(0, &[]).is_err() {
            return Ok(());
        }
        let Page { unpacked, packed, defined, values } = header.page;
        left = header.from.limit();
        // A size below 0 is refused by the library before it is used.
        let (Ok(unpacked), Ok(packed)) = (u64::try_from(unpacked), u64::try_from(packed)) else {
            return Ok(());
        };
        if packed > left {
            return Err(damaged(&format!("a page of {packed} bytes in the last {left} of its column")));
        }
        packing.unpacks(packed, unpacked)?;
        if u64::try_from(defined).is_ok_and(|defined| defined.saturating_mul(width) > unpacked) {
            return Err(damaged(&format!("a dictionary of {defined} numbers in {unpacked} bytes")));
        }
        // A few bytes may say the same of any number of values, all of which may be of one row.
        room(u64::try_from(values).unwrap_or(0).saturating_mul(VALUE))?;
        left -= packed;
        from.seek_relative(packed as i64)?;
    }
    Ok(())
}

/// Bytes that a value takes at most while it is read: two levels, a number of its column's type and one of this reader.
const VALUE: u64 = 2 + 2 + 8 + 8;

/// Of a page's header.
#[derive(Default)]
struct Page {
    unpacked: i64,
    packed: i64,
    /// Numbers of a dictionary.
    defined: i64,
    /// Values of another page, nulls among them.
    values: i64,
}

struct Header<R> {
    from: R,
    page: Page,
}

/// Structures within one another: page headers have no more than four.
const DEPTH: u32 = 16;

impl<R: Read> Header<R> {
    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.from.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    fn number(&mut self) -> io::Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    fn signed(&mut self) -> io::Result<i64> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        match io::copy(&mut (&mut self.from).take(bytes), &mut io::sink())? == bytes {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// A structure, which is the field of this path in those around it.
    fn structure(&mut self, depth: u32, path: &[i64]) -> io::Result<()> {
        if depth > DEPTH {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut field = 0;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(());
            }
            field = match head >> 4 {
                0 => self.signed()?,
                more => field + i64::from(more),
            };
            match (head & 0x0f, path, field) {
                (5, [], 2) => self.page.unpacked = self.signed()?,
                (5, [], 3) => self.page.packed = self.signed()?,
                // The first field of the header of a dictionary, which is the seventh.
                (5, [7], 1) => self.page.defined = self.signed()?,
                // And of that of data, of either version.
                (5, [5 | 8], 1) => self.page.values = self.signed()?,
                // A field that is true or false is that by its kind.
                (1 | 2, ..) => {}
                (12, [], _) => self.structure(depth + 1, &[field])?,
                (kind, ..) => self.value(depth, kind)?,
            }
        }
    }

    /// Passes over a value of this kind.
    fn value(&mut self, depth: u32, kind: u8) -> io::Result<()> {
        match kind {
            1..=3 => self.skip(1),
            4..=6 => self.number().map(drop),
            7 => self.skip(8),
            8 => {
                let length = self.number()?;
                self.skip(length)
            }
            9 | 10 => {
                let head = self.byte()?;
                let length = if head >> 4 == 15 { self.number()? } else { u64::from(head >> 4) };
                (0..length).try_for_each(|_| self.nested(depth, head & 0x0f))
            }
            12 => self.structure(depth + 1, &[-1]),
            // Headers have no maps.
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn nested(&mut self, depth: u32, kind: u8) -> io::Result<()> {
        if depth > DEPTH { Err(io::ErrorKind::InvalidData.into()) } else { self.value(depth + 1, kind) }
    }
}
