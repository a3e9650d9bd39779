package badgerstore

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// killDir is set for the process that is to be killed.
const killDir = "SWAMPD_TEST_KILL_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(killDir); dir != "" {
		writeUntilKilled(dir)
		return
	}
	goleak.VerifyTestMain(m)
}
