const NAME = /^desktop_[a-z0-9_]{1,64}$/;
const PRIVATE = /_(?:read_file|clipboard_read|screenshot)$/;

/** How long a desktop may take to answer, in milliseconds (contract 07 §2.3). */
const TIMEOUT = 30_000;
/** Its owner may have to approve it first. */
const COMPUTER_TIMEOUT = 180_000;
const DEVICE_TIMEOUT = 300_000;

/** Whether a tool may have this name. The relay routes any such name; desktops decide which tools exist. */
export const isToolName = (name: string): boolean => NAME.test(name);

/** Whether the tool acts on the whole computer: it needs a desktop that advertises it, and a control session. */
export const isComputerTool = (tool: string): boolean => tool.startsWith('desktop_computer_');

/** Whether the tool returns files, clipboard or screen, of which only the size is recorded. */
export const isPrivateTool = (tool: string): boolean => PRIVATE.test(tool);

/** How long an answer may take, in milliseconds. */
export function timeoutOf(tool: string): number {
  if (isComputerTool(tool)) return COMPUTER_TIMEOUT;
  return /^desktop_(?:adb|usb)_/.test(tool) ? DEVICE_TIMEOUT : TIMEOUT;
}
