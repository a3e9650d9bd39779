// Command swampd is the orchestrator: it owns workflows, runs, the queue, leases and tokens, and listens for workers
// and clients.
package main

import (
	"os"

	"github.com/swampd/swampd/cmd/internal/cli"
	"github.com/swampd/swampd/cmd/internal/engine"
)

func main() {
	os.Exit(cli.Main(cli.Swampd, engine.Engine{}))
}
