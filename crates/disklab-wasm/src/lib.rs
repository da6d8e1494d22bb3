//! The simulator as a WebAssembly module, without a host's help: it imports nothing.
//!
//! The caller writes a job into what [`room`] returns, calls [`answer`] and reads the answer at [`answer_at`]: the lines that
//! `disklab-engine simulate` prints for the same job, byte for byte but for `wall_s`, which is 0: a module has no clock.

use std::cell::RefCell;

/// What lies in the module's memory between two calls.
struct Exchange {
    job: Vec<u8>,
    answer: Vec<u8>,
}

thread_local! {
    static EXCHANGE: RefCell<Exchange> = const {
        RefCell::new(Exchange { job: Vec::new(), answer: Vec::new() })
    };
}

/// Where the next job of so many bytes is to be written.
#[unsafe(no_mangle)]
pub extern "C" fn room(bytes: usize) -> *mut u8 {
    EXCHANGE.with_borrow_mut(|exchange| {
        exchange.job = vec![0; bytes];
        exchange.job.as_mut_ptr()
    })
}

/// Simulates the job that was written, and returns how many bytes the answer has.
#[unsafe(no_mangle)]
pub extern "C" fn answer() -> usize {
    EXCHANGE.with_borrow_mut(|exchange| {
        let job = std::mem::take(&mut exchange.job);
        let (answers, _) = disklab_sim::answers(&String::from_utf8_lossy(&job), None);
        exchange.answer.clear();
        for answer in answers {
            exchange
                .answer
                .extend_from_slice(answer.to_string().as_bytes());
            exchange.answer.push(b'\n');
        }
        exchange.answer.len()
    })
}

/// Where the answer lies until the next one.
#[unsafe(no_mangle)]
pub extern "C" fn answer_at() -> *const u8 {
    EXCHANGE.with_borrow(|exchange| exchange.answer.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_job_is_answered_with_the_rule() {
        let job = b"{\"cell\": 8, \"seed\": 1}";
        let to = room(job.len());
        // SAFETY: the room has the bytes of the job, and nothing else is called meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(job.as_ptr(), to, job.len()) };
        let bytes = answer();
        // SAFETY: the answer lies there until the next one.
        let text = unsafe { std::slice::from_raw_parts(answer_at(), bytes) };
        assert!(String::from_utf8_lossy(text).contains("exactly one of these keys"));
    }
}
