package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"

	"github.com/peerrelay/peerrelay/api"
)

// DeviceCmd groups the commands on devices.
type DeviceCmd struct {
	List      DeviceListCmd      `cmd:"" help:"List the devices, with their states and fingerprints."`
	Approve   DeviceApproveCmd   `cmd:"" help:"Approve a device that has enrolled, by the fingerprint it shows."`
	Suspend   DeviceSuspendCmd   `cmd:"" help:"Suspend a device; its connections close everywhere before this returns."`
	Reinstate DeviceReinstateCmd `cmd:"" help:"End the suspension of a device."`
	Revoke    DeviceRevokeCmd    `cmd:"" help:"Revoke a device for ever; its connections close everywhere before this returns."`
}

// DeviceListCmd lists devices.
type DeviceListCmd struct {
	State string `enum:"PENDING,APPROVED,ACTIVE,SUSPENDED,REVOKED," default:"" placeholder:"STATE" help:"Only devices in this state: PENDING, APPROVED, ACTIVE, SUSPENDED or REVOKED."`
}

// Help is shown by relay device list --help.
func (*DeviceListCmd) Help() string {
	return `Examples:

  relay device list
  relay device list --state PENDING --json`
}

// Run lists them, all pages.
func (c *DeviceListCmd) Run(ctx context.Context, globals *Globals, con console) error {
	server, err := dial(globals, con)
	if err != nil {
		return err
	}
	all := api.Devices{Devices: []api.Device{}}
	query := url.Values{"limit": {"500"}}
	if c.State != "" {
		query.Set("state", c.State)
	}
	for {
		var page api.Devices
		if err := server.call(ctx, http.MethodGet, "/v1/devices", query, nil, &page); err != nil {
			return fmt.Errorf("list the devices: %w", err)
		}
		all.Devices = append(all.Devices, page.Devices...)
		if page.NextCursor == "" {
			break
		}
		query.Set("cursor", page.NextCursor)
	}
	return show(globals, con, all, func(w io.Writer) {
		if len(all.Devices) == 0 {
			fmt.Fprintln(w, "There is no such device.")
			next(w, globals, con, "invite create")
			return
		}
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "DEVICE\tSTATE\tKIND\tFINGERPRINT\tSINCE\tLABEL")
		for _, d := range all.Devices {
			kind := d.Kind
			if d.Admin {
				kind += " (admin)"
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", d.DeviceID, d.State, kind, orText(d.Fingerprint, "-"), moment(d.CreatedAt), d.Label)
		}
		_ = table.Flush() // into a buffer
		for _, d := range all.Devices {
			if d.State == "PENDING" {
				next(w, globals, con, "device approve --device "+d.DeviceID+" --fingerprint AS_THE_DEVICE_SHOWS_IT")
				break
			}
		}
	})
}

// deviceFlag names one device.
type deviceFlag struct {
	Device string `required:"" placeholder:"ID" help:"The device."`
}

// move calls one of the endpoints that change a device's state.
func (f *deviceFlag) move(ctx context.Context, globals *Globals, con console, name string, body any, text func(w io.Writer, d api.Device)) error {
	if err := checkID("device", f.Device); err != nil {
		return err
	}
	server, err := dial(globals, con)
	if err != nil {
		return err
	}
	var device api.Device
	if err := server.call(ctx, http.MethodPost, "/v1/devices/"+f.Device+"/"+name, nil, body, &device); err != nil {
		return fmt.Errorf("%s the device: %w", name, err)
	}
	return show(globals, con, device, func(w io.Writer) { text(w, device) })
}

// DeviceApproveCmd approves a device.
type DeviceApproveCmd struct {
	deviceFlag  `embed:""`
	Fingerprint string `required:"" placeholder:"FINGERPRINT" help:"As the device itself shows it, read there or told by its owner: not copied from relay device list."`
}

// Help is shown by relay device approve --help.
func (*DeviceApproveCmd) Help() string {
	return `Example:

  relay device approve --device DEVICE_ID --fingerprint K7QM-2XPD-9VWE-R4TN-BA3C

Spaces, dashes and case do not matter. Another fingerprint is refused.`
}

// Run approves it.
func (c *DeviceApproveCmd) Run(ctx context.Context, globals *Globals, con console) error {
	return c.move(ctx, globals, con, "approve", api.Approval{Fingerprint: c.Fingerprint}, func(w io.Writer, d api.Device) {
		fmt.Fprintf(w, "Device %s is approved. It is active as soon as it has published its keys.\n", d.DeviceID)
		next(w, globals, con, "device list", "participant add --room ROOM_ID --role agent --device "+d.DeviceID)
	})
}

// DeviceSuspendCmd suspends a device.
type DeviceSuspendCmd struct {
	deviceFlag `embed:""`
}

// Help is shown by relay device suspend --help.
func (*DeviceSuspendCmd) Help() string {
	return "Example:\n\n  relay device suspend --device DEVICE_ID\n\nIt keeps its memberships. Suspending again is no error."
}

// Run suspends it.
func (c *DeviceSuspendCmd) Run(ctx context.Context, globals *Globals, con console) error {
	return c.move(ctx, globals, con, "suspend", nil, func(w io.Writer, d api.Device) {
		fmt.Fprintf(w, "Device %s is suspended, and its connections are closed.\n", d.DeviceID)
		next(w, globals, con, "device reinstate --device "+d.DeviceID)
	})
}

// DeviceReinstateCmd ends a suspension.
type DeviceReinstateCmd struct {
	deviceFlag `embed:""`
}

// Help is shown by relay device reinstate --help.
func (*DeviceReinstateCmd) Help() string {
	return "Example:\n\n  relay device reinstate --device DEVICE_ID"
}

// Run ends it.
func (c *DeviceReinstateCmd) Run(ctx context.Context, globals *Globals, con console) error {
	return c.move(ctx, globals, con, "reinstate", nil, func(w io.Writer, d api.Device) {
		fmt.Fprintf(w, "Device %s is active again.\n", d.DeviceID)
		next(w, globals, con, "device list")
	})
}

// DeviceRevokeCmd revokes a device.
type DeviceRevokeCmd struct {
	deviceFlag `embed:""`
}

// Help is shown by relay device revoke --help.
func (*DeviceRevokeCmd) Help() string {
	return "Example:\n\n  relay device revoke --device DEVICE_ID\n\nThere is no way back: the device has to enroll with new keys. Only an ACTIVE device is revoked: reinstate a suspended one first. Revoking again is no error."
}

// Run revokes it.
func (c *DeviceRevokeCmd) Run(ctx context.Context, globals *Globals, con console) error {
	return c.move(ctx, globals, con, "revoke", nil, func(w io.Writer, d api.Device) {
		fmt.Fprintf(w, "Device %s is revoked: it is in no room any more, and its connections are closed.\n", d.DeviceID)
		next(w, globals, con, "device list", "invite create")
	})
}
