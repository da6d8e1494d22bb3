//! Events as numbers: the queue's keys are whole numbers, so an event is one too.

use crate::engine::Code;

/// Bits for what an event is of, as a session or a request: fewer than 2^24 or 2^28 of them are under way.
pub const KIND_BITS: u32 = 4;

/// Kinds that are the kernel's: a database's own come behind them.
pub const KERNEL_KINDS: u32 = 2;

/// What an event is of.
pub trait Subject: Copy {
    /// As a number.
    fn number(self) -> u32;
    /// What a number is that [`Subject::number`] made.
    fn of_number(number: u32) -> Self;
}

impl Subject for u32 {
    #[inline]
    fn number(self) -> u32 {
        self
    }

    #[inline]
    fn of_number(number: u32) -> u32 {
        number
    }
}

/// What happens in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening<E> {
    /// An I/O has ended.
    Io(u32),
    /// The disk model of a machine is due.
    Due(u32),
    /// Something of the database's own.
    Own(E),
}

impl<E> From<E> for Happening<E> {
    #[inline]
    fn from(event: E) -> Happening<E> {
        Happening::Own(event)
    }
}

impl<E: Code> Code for Happening<E> {
    #[inline]
    fn encode(self) -> u32 {
        let (kind, number) = match self {
            Happening::Io(io) => (0, io),
            Happening::Due(machine) => (1, machine),
            Happening::Own(event) => return event.encode(),
        };
        number_of_kind(kind, number, 32)
    }

    #[inline]
    fn decode(code: u32) -> Happening<E> {
        let (kind, number) = kind_and_number(code, 32);
        match kind {
            0 => Happening::Io(number),
            1 => Happening::Due(number),
            _ => Happening::Own(E::decode(code)),
        }
    }
}

/// A kind and what it is of in so many bits.
#[inline]
pub fn number_of_kind(kind: u32, number: u32, bits: u32) -> u32 {
    let shift = bits - KIND_BITS;
    debug_assert!(number < 1 << shift, "fewer things under way than 2^{shift}");
    kind << shift | number
}

/// The kind, and what it is of.
#[inline]
pub fn kind_and_number(code: u32, bits: u32) -> (u32, u32) {
    let shift = bits - KIND_BITS;
    (code >> shift, code & ((1 << shift) - 1))
}

/// Declares events: each a kind, and what it is of if it is of something.
///
/// `in 32 bits`: events of a database. `in 28 bits`: events that are one kind of another's.
macro_rules! events {
    (
        $(#[$about:meta])*
        $reach:vis enum $name:ident in $bits:literal bits {
            $($(#[$what:meta])* $kind:ident $(($subject:ident: $of:ty))?,)+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $reach enum $name {
            $($(#[$what])* $kind $(($of))?,)+
        }

        const _: () = {
            /// Kinds by number.
            #[repr(u32)]
            enum Kind {
                $($kind,)+
            }

            const FIRST: u32 = if $bits == 32 { $crate::event::KERNEL_KINDS } else { 0 };
            const COUNT: u32 = [$(stringify!($kind)),+].len() as u32;
            const {
                assert!(FIRST + COUNT <= 1 << $crate::event::KIND_BITS, "too many kinds");
            }

            impl $crate::event::Subject for $name {
                #[inline]
                fn number(self) -> u32 {
                    let (kind, number) = match self {
                        $($name::$kind $(($subject))? => (
                            Kind::$kind as u32,
                            0 $(+ <$of as $crate::event::Subject>::number($subject))?,
                        ),)+
                    };
                    $crate::event::number_of_kind(FIRST + kind, number, $bits)
                }

                #[inline]
                fn of_number(code: u32) -> $name {
                    let (kind, _number) = $crate::event::kind_and_number(code, $bits);
                    match kind - FIRST {
                        $(kind if kind == Kind::$kind as u32 => {
                            $name::$kind $((<$of as $crate::event::Subject>::of_number(_number)))?
                        })+
                        _ => unreachable!("nobody made such an event"),
                    }
                }
            }

            impl $crate::engine::Code for $name {
                #[inline]
                fn encode(self) -> u32 {
                    $crate::event::Subject::number(self)
                }

                #[inline]
                fn decode(code: u32) -> $name {
                    $crate::event::Subject::of_number(code)
                }
            }
        };
    };
}

pub(crate) use events;

#[cfg(test)]
mod tests {
    use super::*;

    events! {
        /// Within another.
        enum Inner in 28 bits {
            /// Of nothing.
            Alone,
            /// Of a thing.
            Of(number: u32),
        }
    }

    events! {
        /// A database's.
        enum Outer in 32 bits {
            /// Another's.
            Inner(inner: Inner),
            /// Of nothing.
            Alone,
            /// Of a thing.
            Of(number: u32),
        }
    }

    #[test]
    fn events_are_what_they_were() {
        let most = (1 << 24) - 1;
        let own = [
            Outer::Inner(Inner::Alone),
            Outer::Inner(Inner::Of(0)),
            Outer::Inner(Inner::Of(most)),
            Outer::Alone,
            Outer::Of((1 << 28) - 1),
        ];
        let all = own.map(Happening::Own);
        for event in [Happening::Io(7), Happening::Due(most)]
            .into_iter()
            .chain(all)
        {
            assert_eq!(Happening::decode(event.encode()), event);
        }
    }
}
