package client

// What tests need beside the exported names.
var OpenDevicePausing = openDevice
