"""The pages that `launchpad view` shows in a browser. Each page has a file, and is built with NiceGUI."""
