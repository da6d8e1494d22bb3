// Tests that hold code to what it may do to a disk: the test runs itself again on an emulated one.
package disk

import (
	"os"
	"os/exec"
	"testing"
)

// onDisk runs body in a folder on an emulated disk, in a process of its own, and fails where it misses the budget.
func onDisk(t *testing.T, disk, budget string, body func() error) {
	t.Helper()
	if os.Getenv("ON_DISK") == t.Name() {
		if err := body(); err != nil {
			t.Fatal(err)
		}
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("disklab", "run", "--disk", disk, "--budget", budget, "--", self, "-test.run=^"+t.Name()+"$")
	command.Env = append(os.Environ(), "ON_DISK="+t.Name())
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
}

func TestARecordIsSyncedOnce(t *testing.T) {
	onDisk(t, "azure/P10", "fsyncs <= 12, p99 write <= 20ms", func() error {
		file, err := os.Create("records")
		if err != nil {
			return err
		}
		for record := 0; record < 5; record++ {
			if _, err := file.Write(make([]byte, 4096)); err != nil {
				return err
			}
			if err := file.Sync(); err != nil {
				return err
			}
		}
		return file.Close()
	})
}
