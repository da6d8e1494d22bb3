//! How long a cell took to simulate: the one thing that a report says of the machine.

/// Runs since it was started; in a browser, where a module has no clock, it shows nothing.
#[derive(Clone, Copy)]
pub struct Stopwatch(#[cfg(not(target_family = "wasm"))] std::time::Instant);

impl Stopwatch {
    /// Starts one.
    pub fn start() -> Stopwatch {
        Stopwatch(
            #[cfg(not(target_family = "wasm"))]
            std::time::Instant::now(),
        )
    }

    /// Seconds since the start.
    pub fn seconds(self) -> f64 {
        #[cfg(not(target_family = "wasm"))]
        return self.0.elapsed().as_secs_f64();
        #[cfg(target_family = "wasm")]
        return 0.0;
    }
}
