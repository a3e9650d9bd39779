package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/swampd/swampd/messages"
)

// version is that of this build, as the Go toolchain stamps it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

// versionInfo is what swamp version prints.
type versionInfo struct {
	Version  string `json:"version"`
	Protocol int    `json:"protocol"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Arch     string `json:"arch"`
}

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show the version of this program",
		Example: "  swamp version\n  swamp version --output json",
		Args:    wants(),
	}
	a.addFormat(cmd.Flags())
	return a.command(cmd, func(*cobra.Command, []string, settings) error {
		v := versionInfo{version(), messages.ProtocolVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH}
		if a.json() {
			return json.NewEncoder(a.host.Stdout).Encode(v)
		}
		_, err := fmt.Fprintf(a.host.Stdout, "swamp %s, protocol %d, %s, %s/%s\n", v.Version, v.Protocol, v.Go, v.Platform, v.Arch)
		return err
	})
}
