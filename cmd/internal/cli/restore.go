package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/swampd/swampd/cmd/internal/daemon"
	"github.com/swampd/swampd/persistence"
)

// restoreShape says for scripts what was restored, and where.
type restoreShape struct {
	backupShape
	DataDir string `json:"dataDir"`
}

func (a *app) restoreCommand() *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make a data directory from a backup",
		Long: "Make a data directory from a backup. It has to be a new one, or empty. All of the backup is checked before anything\n" +
			"is written; the directory is there when it is whole, or not at all.\n\n" +
			"The orchestrator that is then started there takes the moment of the backup for its last one: what was in flight is\n" +
			"treated as after a restart, and what happened since is not known to it. Never start it beside the one that the backup\n" +
			"was taken of.",
		Example: "  swampd restore /backup/swampd-2026-03-14 --data-dir /srv/swampd-restored",
		Args:    wants("FILE"),
	}
	a.addDataDir(cmd.Flags(), &dataDir, "`DIR` that is made")
	a.addFormat(cmd.Flags())
	return a.command(cmd, func(_ *cobra.Command, args []string, from settings) error {
		if dataDir == "" {
			return usagef("%s is needed: this user has no home directory", from.name("data-dir"))
		}
		info, err := a.restoreBackup(args[0], dataDir)
		if err != nil {
			return err
		}
		if a.json() {
			return json.NewEncoder(a.host.Stdout).Encode(restoreShape{shapeOfBackup(args[0], info), dataDir})
		}
		_, err = fmt.Fprintf(a.host.Stdout, "%s: restored %d records of %s; start it with swampd --data-dir %s\n",
			dataDir, info.Records, info.Time.Local().Format("2006-01-02 15:04:05"), dataDir)
		return err
	})
}

func (a *app) restoreBackup(file, dir string) (_ persistence.BackupInfo, err error) {
	f, err := os.Open(file)
	if err != nil {
		return persistence.BackupInfo{}, fmt.Errorf("read the backup %s: %w", file, daemon.PlainPathError(err))
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := a.host.Engine.Restore(f, dir)
	if isType[*persistence.BackupError](err) {
		err = fmt.Errorf("%s cannot be restored: %w: use another backup; nothing was written", file, err)
	}
	return info, err
}
