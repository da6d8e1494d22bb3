//! Lines of bounded length.

use std::io::{self, BufRead};

/// The longest line, of a request and of an answer: a chunk of `protocol::MOST_CHUNK_BYTES` in base64 and its words.
pub const MOST_LINE_BYTES: usize = 1 << 20;

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A line without its end.
    Whole(Vec<u8>),
    /// One that was longer than allowed; it was skipped.
    TooLong,
    /// There is no more.
    End,
}

/// Reads the next line; what has no end is taken as a line too, unless it is empty.
pub fn next(input: &mut impl BufRead) -> io::Result<Line> {
    let mut line = Vec::new();
    let mut too_long = false;
    loop {
        let found = match input.fill_buf() {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if found.is_empty() {
            return Ok(match (too_long, line.is_empty()) {
                (true, _) => Line::TooLong,
                (false, true) => Line::End,
                (false, false) => Line::Whole(line),
            });
        }
        let end = found.iter().position(|byte| *byte == b'\n');
        let part = &found[..end.unwrap_or(found.len())];
        if line.len() + part.len() > MOST_LINE_BYTES {
            too_long = true;
            line = Vec::new();
        }
        if !too_long {
            line.extend_from_slice(part);
        }
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            return Ok(if too_long {
                Line::TooLong
            } else {
                Line::Whole(line)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_skipped_and_the_next_one_read() {
        let mut text = vec![b'x'; MOST_LINE_BYTES + 1];
        text.extend_from_slice(b"\nshort\nlast");
        let mut input = std::io::BufReader::with_capacity(777, &text[..]);
        assert_eq!(next(&mut input).unwrap(), Line::TooLong);
        assert_eq!(next(&mut input).unwrap(), Line::Whole(b"short".to_vec()));
        assert_eq!(next(&mut input).unwrap(), Line::Whole(b"last".to_vec()));
        assert_eq!(next(&mut input).unwrap(), Line::End);
    }

    #[test]
    fn the_longest_line_is_whole() {
        let mut text = vec![b'x'; MOST_LINE_BYTES];
        text.push(b'\n');
        assert!(
            matches!(next(&mut &text[..]).unwrap(), Line::Whole(line) if line.len() == MOST_LINE_BYTES)
        );
    }
}
