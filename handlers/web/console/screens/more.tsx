import { MoreList } from '../../shared/shell.tsx';
import { screens } from '../screens.ts';

/** The screens that do not fit into the bar of a phone. */
export default function More() {
  return <MoreList screens={screens} />;
}
