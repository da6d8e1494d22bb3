//! A connection's bytes, encrypted or not.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Bytes to and from a server. What was written encrypted is sent for certain once it was flushed.
#[derive(Debug)]
pub enum Stream {
    /// As they are.
    Plain(TcpStream),
    /// Encrypted.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Sends all of it.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes).await?;
        self.flush().await
    }

    /// What carries them.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Stream::Plain(tcp) => tcp,
            Stream::Tls(tls) => tls.get_ref().0,
        }
    }
}

impl AsyncRead for Stream {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_read(context, buffer),
            Stream::Tls(tls) => Pin::new(tls).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write(context, bytes),
            Stream::Tls(tls) => Pin::new(tls).poll_write(context, bytes),
        }
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_flush(context),
            Stream::Tls(tls) => Pin::new(tls).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_shutdown(context),
            Stream::Tls(tls) => Pin::new(tls).poll_shutdown(context),
        }
    }
}

/// What is read at once: more than a row of the usual benchmarks, so that nearly every answer is one read.
const READ_BYTES: usize = 8 << 10;

/// What was received and not yet looked at: `bytes[from..to]`.
#[derive(Default)]
pub struct Received {
    bytes: Vec<u8>,
    from: usize,
    to: usize,
}

impl Received {
    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..self.to]
    }

    /// Takes the first `count` bytes of it, which have come.
    pub fn take(&mut self, count: usize) -> &[u8] {
        let taken = self.from..self.from + count;
        self.from = taken.end;
        &self.bytes[taken]
    }

    /// Receives something; there is room for a message of `needed` bytes afterwards.
    pub async fn fill(&mut self, needed: usize, stream: &mut Stream) -> io::Result<()> {
        self.bytes.copy_within(self.from..self.to, 0);
        self.to -= self.from;
        self.from = 0;
        let room = needed.max(READ_BYTES);
        if self.bytes.len() < room {
            self.bytes.resize(room, 0);
        }
        match stream.read(&mut self.bytes[self.to..]).await? {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            count => {
                self.to += count;
                Ok(())
            }
        }
    }
}
