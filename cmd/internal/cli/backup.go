package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/cmd/internal/daemon"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// partialSuffix ends the name of a backup that is not whole yet.
const partialSuffix = ".partial"

// addDataDir adds the flag that names the data directory.
func (a *app) addDataDir(flags *pflag.FlagSet, dir *string, usage string) {
	flags.StringVar(dir, "data-dir", defaultDataDir(a.host), usage+"; by default $XDG_STATE_HOME/swampd, for root /var/lib/swampd")
	flags.Lookup("data-dir").DefValue = "" // it depends on the machine
	bindEnv(flags, "data-dir", "SWAMPD_DATA_DIR")
}

// backupShape describes a backup for scripts.
type backupShape struct {
	File       string `json:"file"`
	Bytes      uint64 `json:"bytes"`
	Digest     string `json:"digest"`
	StoreID    string `json:"storeId"`
	Generation uint64 `json:"generation"`
	Epoch      uint64 `json:"epoch"`
	Records    uint64 `json:"records"`
	Bodies     uint64 `json:"bodies"`
	Absent     uint64 `json:"absentBodies"` // that were missing or damaged where it was taken
	TakenAt    string `json:"takenAt"`
}

func shapeOfBackup(file string, info persistence.BackupInfo) backupShape {
	return backupShape{
		File: file, Bytes: info.Bytes, Digest: info.Digest, StoreID: info.StoreID, Generation: info.Generation, Epoch: info.Epoch,
		Records: info.Records, Bodies: info.Bodies, Absent: info.Absent, TakenAt: info.Time.UTC().Format(time.RFC3339Nano),
	}
}

func (a *app) backupCommand() *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write a backup of a running orchestrator to a file",
		Long: "Write what a running orchestrator holds, records and output, to a file. It is the state of one moment; the\n" +
			"orchestrator goes on meanwhile. The file gets its name when it is whole, checked and on the disk: until then it is\n" +
			"called FILE" + partialSuffix + ". A file that is there is never overwritten.\n\n" +
			"The server token is no part of it: a restored orchestrator makes a new one.",
		Example: "  swampd backup /backup/swampd-$(date +%F)\n" +
			"  swampd backup --server https://orchestrator.example:4000 swampd.backup",
		Args: wants("FILE"),
	}
	a.addDataDir(cmd.Flags(), &dataDir, "`DIR` of an orchestrator on this machine, whose server token is used")
	a.addFormat(cmd.Flags())
	a.addClient(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		c, err := a.newClient(from)
		if err != nil {
			return err
		}
		if from.given("data-dir") && a.client.token.secret == "" {
			c.tokenFrom = filepath.Join(dataDir, daemon.AdminTokenFile)
			if c.token, err = daemon.ReadTokenFile(c.tokenFrom); err != nil {
				return fmt.Errorf("read the server token of %s: %w: give it by --server-token", dataDir, daemon.PlainPathError(err))
			}
		}
		info, err := a.backup(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		if a.json() {
			return json.NewEncoder(a.host.Stdout).Encode(shapeOfBackup(args[0], info))
		}
		if info.Absent > 0 {
			fmt.Fprintf(a.host.Stderr, "%d bodies of artifacts are missing or damaged in the data directory, and so in the backup: its log names them\n", info.Absent)
		}
		_, err = fmt.Fprintf(a.host.Stdout, "%s: %s, %d records, sha256 %s\n", args[0], sizeText(info.Bytes), info.Records, info.Digest)
		return err
	})
}

// backup receives a backup, until a signal ends it.
func (a *app) backup(ctx context.Context, c *client, file string) (persistence.BackupInfo, error) {
	signals, stop := a.host.Notify(os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() { // ends with the backup, which waits for it
		defer close(watched)
		select {
		case <-signals:
			cancel(errInterrupted)
		case <-done:
		}
	}()
	defer func() { close(done); <-watched }()
	return receiveBackup(ctx, c, file)
}

// receiveBackup writes a backup beside its file, checks it as it stands on the disk, and gives it its name.
func receiveBackup(ctx context.Context, c *client, file string) (info persistence.BackupInfo, err error) {
	if _, err := os.Lstat(file); err == nil {
		return info, usagef("%s exists: choose another file, or remove it", file)
	}
	partial := file + partialSuffix
	f, err := openPartial(partial)
	if err != nil {
		return info, err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(partial) // what matters is why there is no backup
		}
	}()
	received := &counted{w: f, sum: sha256.New()}
	result, err := c.download(ctx, messages.VerbBackup, &messages.BackupParams{}, received)
	if err != nil {
		return info, err
	}
	if said := result.(*messages.BackupResult); said.GetDigest() != received.digest() || said.GetBytes() != float64(received.n) {
		return info, fmt.Errorf("the backup was damaged on its way: %d of %.0f bytes came, with digest %s, not %s: try again",
			received.n, said.GetBytes(), received.digest(), said.GetDigest())
	}
	if err := f.Sync(); err != nil {
		return info, fmt.Errorf("write the backup: %w", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return info, fmt.Errorf("read the backup again: %w", err)
	}
	if info, err = persistence.ReadBackup(f, nil); err != nil {
		return info, fmt.Errorf("check the backup as it was written to %s: %w: look at the disk, and try again", partial, err)
	}
	return info, nameBackup(partial, file)
}

// openPartial opens the file that a backup is received into, for this process alone. One that a killed process left is
// used again.
func openPartial(partial string) (*os.File, error) {
	f, err := os.OpenFile(partial, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("write the backup to %s: %w", partial, daemon.PlainPathError(err))
	}
	if err := lockFile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("another backup is being written to %s: wait for it, or choose another file", partial), f.Close())
	}
	if err := errors.Join(f.Chmod(0o600), f.Truncate(0)); err != nil {
		return nil, errors.Join(fmt.Errorf("write the backup to %s: %w", partial, err), f.Close())
	}
	return f, nil
}

// nameBackup gives a whole backup its name, unless that is taken by now.
func nameBackup(partial, file string) error {
	err := os.Link(partial, file)
	switch {
	case err == nil:
		err = os.Remove(partial)
	case errors.Is(err, os.ErrExist):
		return usagef("%s exists by now: choose another file", file)
	default: // a file system without links
		err = os.Rename(partial, file)
	}
	if err != nil {
		return fmt.Errorf("give the backup its name: %w", err)
	}
	return syncFolder(filepath.Dir(file))
}

// download asks for a stream of bytes. It tries for a moment where the orchestrator may just be starting.
func (c *client) download(ctx context.Context, verb messages.Verb, params proto.Message, w io.Writer) (proto.Message, error) {
	begun := false
	start := time.Now()
	for try := 0; ; try++ {
		result, err := c.stream(ctx, verb, params, stream{
			alive: func() {},
			chunk: func(p []byte) error {
				begun = true
				if _, err := w.Write(p); err != nil {
					return fmt.Errorf("write what comes from the orchestrator: %w", err)
				}
				return nil
			},
		})
		if err == nil || begun || !transient(err) || time.Since(start) > dialPatience {
			if isType[*lostError](err) {
				err = &unreachableError{server: c.shown, err: err}
			}
			return result, err
		}
		if err := c.pause(ctx, try); err != nil {
			return nil, err
		}
	}
}

// counted counts and sums up what is written.
type counted struct {
	w   io.Writer
	n   uint64
	sum hash.Hash
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += uint64(n)
	c.sum.Write(p[:n])
	return n, err
}

func (c *counted) digest() string { return hex.EncodeToString(c.sum.Sum(nil)) }

// sizeText is a number of bytes for people.
func sizeText(n uint64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
}
