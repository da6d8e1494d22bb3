//! What a frame is made of: numbers, text and values.

/// A body, or a value of several parts, or what is left of it.
#[derive(Clone, Copy, Debug)]
pub struct Body<'a>(pub &'a [u8]);

impl<'a> Body<'a> {
    /// So many bytes.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number of two bytes.
    pub fn short(&mut self) -> Option<usize> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_be_bytes(*number).into())
    }

    /// A number of four bytes.
    pub fn int(&mut self) -> Option<i32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(i32::from_be_bytes(*number))
    }

    /// Text behind its length of two bytes.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.short()?;
        self.take(len)
    }

    /// A value; None inside: null.
    pub fn value(&mut self) -> Option<Option<&'a [u8]>> {
        match usize::try_from(self.int()?) {
            Ok(len) => self.take(len).map(Some),
            Err(_) => Some(None),
        }
    }
}
