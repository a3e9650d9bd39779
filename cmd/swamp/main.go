// Command swamp runs workflows, shows the fleet and the queue, and looks inside the actor system.
package main

import (
	"os"

	"github.com/swampd/swampd/cmd/internal/cli"
	"github.com/swampd/swampd/cmd/internal/engine"
)

func main() {
	os.Exit(cli.Main(cli.Swamp, engine.Engine{}))
}
