# A formula for a tap. It was never installed by Homebrew: it is for the day on which the archives are published.
class Lastword < Formula
  desc "Message broker for teams of AI agents in which every conversation ends"
  url "@RELEASES@/v@VERSION@/lastword-@VERSION@-x86_64-linux.tar.xz"
  sha256 "@SHA256@"
  license "Apache-2.0"
  depends_on :linux
  depends_on arch: :x86_64

  def install
    bin.install "lastword"
    man1.install Dir["man/man1/*"]
    bash_completion.install "completions/lastword.bash" => "lastword"
    zsh_completion.install "completions/lastword.zsh" => "_lastword"
    fish_completion.install "completions/lastword.fish"
  end

  service do
    run [opt_bin/"lastword", "--data", var/"lastword", "serve"]
    keep_alive true
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/lastword --version")
  end
end
