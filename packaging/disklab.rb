# Homebrew's formula of a release; scripts/release.sh fills in what stands between @, into dist/.
class Disklab < Formula
  desc "Which disks should my distributed database live on? Predict, rehearse, measure"
  homepage "https://github.com/disklab/disklab"
  url "https://github.com/disklab/disklab/releases/download/v@VERSION@/disklab-@VERSION@.tar.gz"
  sha256 "@SHA256@"
  license "Apache-2.0"

  depends_on "rust" => :build
  depends_on "python@3.13"

  def install
    # The versions of the lock file, so that what is installed is what was tested.
    system "python3.13", "-m", "venv", libexec
    system libexec/"bin/pip", "install", "--require-hashes", "-r", "requirements.lock"
    system libexec/"bin/pip", "install", "--no-deps", "."
    bin.install_symlink libexec/"bin/disklab"
    man1.install_symlink libexec/"share/man/man1/disklab.1"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/disklab --version")
    system bin/"disklab", "predict", "cassandra-host-caching-quick", "--fidelity", "quick", "--no-bands"
  end
end
