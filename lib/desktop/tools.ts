const NAME = /^desktop_[a-z0-9_]{1,64}$/;
const PRIVATE = /_(?:read_file|clipboard_read|screenshot)$/;

/** Milliseconds in which a desktop must answer (contract 07 §2.3). */
const TIMEOUT = 30_000;
/** Its owner may have to approve it first. */
const COMPUTER_TIMEOUT = 180_000;
const DEVICE_TIMEOUT = 300_000;

/** True if a tool may have this name. The relay routes any such name; desktops decide which tools exist. */
export const isToolName = (name: string): boolean => NAME.test(name);

/** True if the tool acts on the whole computer: it needs a desktop that advertises it, and a control session. */
export const isComputerTool = (tool: string): boolean => tool.startsWith('desktop_computer_');

/** True if the tool returns files, clipboard or screen, of which only the size is recorded. */
export const isPrivateTool = (tool: string): boolean => PRIVATE.test(tool);

/** Milliseconds in which a tool must answer. */
export function timeoutOf(tool: string): number {
  if (isComputerTool(tool)) return COMPUTER_TIMEOUT;
  return /^desktop_(?:adb|usb)_/.test(tool) ? DEVICE_TIMEOUT : TIMEOUT;
}
