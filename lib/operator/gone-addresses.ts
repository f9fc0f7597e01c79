import { asObject } from '../kit/json.ts';
import { visibleName } from '../kit/text.ts';

/** Addresses that the machine no longer has, and the names of the devices that know no other. */
export interface GoneAddress {
  urls: string[];
  devices: string[];
}

const MAX_NAMES = 5;

export const GONE_ADVICE =
  'Pair them again with: svc pair. Or give this machine its old address again, such as by a fixed lease in the router.';

/** `gone_addresses` of `GET /relay/info` (contract 11 §2); empty if the relay lists none. */
export function readGoneAddresses(info: unknown): GoneAddress[] {
  const rows = asObject(info)?.gone_addresses;
  return (Array.isArray(rows) ? rows : []).map((row) => {
    const { urls, devices } = asObject(row) ?? {};
    return {
      urls: (Array.isArray(urls) ? urls : []).map((url) => visibleName(url)),
      devices: (Array.isArray(devices) ? devices : []).map((device) => visibleName(asObject(device)?.device_name)),
    };
  });
}

/** `ws://192.0.2.7:8767 is no address of this machine any more, and Pixel 9 knows no other`. */
export function goneText({ urls, devices }: GoneAddress): string {
  const rest = devices.length - MAX_NAMES;
  const names = devices.slice(0, MAX_NAMES).join(', ') + (rest > 0 ? ` and ${rest} more` : '');
  const [are, know] = [
    urls.length === 1 ? 'is no address' : 'are no addresses',
    devices.length === 1 ? 'knows' : 'know',
  ];
  return `${urls.join(' and ')} ${are} of this machine any more, and ${names} ${know} no other`;
}
