package badgerstore

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// killDir and restoreDir are set for the processes that are to be killed.
const (
	killDir    = "SWAMPD_TEST_KILL_DIR"
	restoreDir = "SWAMPD_TEST_RESTORE_DIR"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(killDir); dir != "" {
		writeUntilKilled(dir)
		return
	}
	if dir := os.Getenv(restoreDir); dir != "" {
		restoreUntilKilled(dir)
	}
	goleak.VerifyTestMain(m)
}
