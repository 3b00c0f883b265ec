#!/bin/sh
# Wireshark's interface "Kafka (kafkasniff)": packets of Kafka's connections on any port, and of no others.
# Wireshark runs this with --extcap-* options (its manual page extcap(4)).
interface=any fifo= filter= action= previous=
for option; do
  case $previous in
    --interface) interface=$option ;;
    --fifo) fifo=$option ;;
    --extcap-capture-filter) filter=$option ;;
  esac
  case $option in
    --extcap-interfaces | --extcap-dlts | --extcap-config | --capture) action=$option ;;
    --extcap-capture-filter=*) filter=${option#*=} ;;
  esac
  previous=$option
done
case $action in
  --extcap-interfaces)
    echo "extcap {version=VERSION}{display=kafkasniff}"
    echo "interface {value=kafkasniff}{display=Kafka (kafkasniff)}"
    ;;
  --extcap-dlts) echo "dlt {number=1}{name=EN10MB}{display=Packets of Kafka}" ;;
  --extcap-config)
    echo "arg {number=0}{call=--interface}{display=Interface}{type=string}{default=any}{tooltip=As in kafkasniff live -D}"
    ;;
  --capture) exec COMMAND live --quiet --interface "$interface" --write "$fifo" ${filter:+-- "$filter"} ;;
  *) echo "Wireshark runs this program; see COMMAND wireshark --help" >&2; exit 2 ;;
esac
