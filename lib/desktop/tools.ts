const NAME = /^desktop_[a-z0-9_]{1,64}$/;
const PRIVATE = /_(?:read_file|clipboard_read|screenshot)$/;

/** How long a desktop may take, in milliseconds (contract 07 §2.3). */
const TIMEOUT = 30_000;
/** Somebody may have to approve it first. */
const COMPUTER_TIMEOUT = 180_000;
const DEVICE_TIMEOUT = 300_000;

/** Whether a tool may have this name. Which tools there are is the desktops' matter: the relay routes any. */
export const isToolName = (name: string): boolean => NAME.test(name);

/** Whether the tool acts on the whole computer: only a desktop that names it is asked, under a control session. */
export const isComputerTool = (tool: string): boolean => tool.startsWith('desktop_computer_');

/** Whether the tool returns files, clipboard or screen: of that only the size is written down. */
export const isPrivateTool = (tool: string): boolean => PRIVATE.test(tool);

/** How long an answer may take, in milliseconds. */
export function timeoutOf(tool: string): number {
  if (isComputerTool(tool)) return COMPUTER_TIMEOUT;
  return /^desktop_(?:adb|usb)_/.test(tool) ? DEVICE_TIMEOUT : TIMEOUT;
}
