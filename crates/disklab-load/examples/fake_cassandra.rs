//! The tests' small database as a program, for benchmarks of the load engine: prints its address, then
//! serves until its standard input ends.

#[allow(dead_code)] // the tests use the rest
#[path = "../tests/fake/mod.rs"]
mod fake;

fn main() -> std::io::Result<()> {
    let fake = fake::Fake::start(fake::Manners::default());
    println!("{}", fake.address);
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}
