package pgd

import "context"

// Programs says which server programs Start would use for a data folder: their folder
// and major version. Errors: ErrNoPrograms, ErrVersion.
func Programs(ctx context.Context, dataDir string) (folder string, version int, err error) {
	want, err := dataVersion(dataDir)
	if err != nil {
		return "", 0, err
	}
	found, err := findPrograms(ctx, "", want)
	return found.dir, found.version, err
}
