// Command swamp-worker is the agent: it dials an orchestrator, runs the steps that it is given, and keeps nothing that
// cannot be lost.
package main

import (
	"os"

	"github.com/swampd/swampd/cmd/internal/cli"
)

func main() {
	os.Exit(cli.Main(cli.SwampWorker, nil))
}
